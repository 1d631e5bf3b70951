"""config.json of a Llama- or Qwen3-type decoder, reduced to what the forward pass needs; the rest is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True)
class ModelConfig:
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    eps: float
    rope_theta: float
    max_positions: int
    tied: bool
    eos: frozenset[int]

    @property
    def group(self) -> int:
        """Query heads that share one K/V head."""
        return self.heads // self.kv_heads


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ValueError naming the file when there is none."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object")
    return value


def parse(raw: dict[str, Any], path: Path) -> ModelConfig:
    """ModelConfig of the parsed config.json at `path`. Whatever the forward pass would get wrong is a ValueError."""
    _refuse_unsupported(raw, path)
    rope = raw.get("rope_parameters") or {}
    try:
        config = ModelConfig(
            layers=int(raw["num_hidden_layers"]),
            hidden=int(raw["hidden_size"]),
            intermediate=int(raw["intermediate_size"]),
            heads=int(raw["num_attention_heads"]),
            kv_heads=int(raw.get("num_key_value_heads") or raw["num_attention_heads"]),
            head_dim=int(raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]),
            vocab=int(raw["vocab_size"]),
            eps=float(raw["rms_norm_eps"]),
            rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            max_positions=int(raw["max_position_embeddings"]),
            tied=bool(raw.get("tie_word_embeddings", False)),
            eos=_token_ids(raw.get("eos_token_id")),
        )
    except KeyError as error:
        raise ValueError(f"{path}: key {error.args[0]} is missing") from None
    if config.heads % config.kv_heads:
        raise ValueError(f"{path}: num_attention_heads must be a multiple of num_key_value_heads")
    return config


def generation_eos(folder: Path) -> frozenset[int]:
    """End tokens named by generation_config.json, which chat models use to add the end of a turn."""
    path = folder / "generation_config.json"
    return _token_ids(read_json(path).get("eos_token_id")) if path.exists() else frozenset()


def _refuse_unsupported(raw: dict[str, Any], path: Path) -> None:
    def refuse(key: str, allowed: str) -> None:
        raise ValueError(f"{path}: {key} = {raw.get(key)!r} is not supported (allowed: {allowed})")

    if raw.get("model_type") not in ARCHITECTURES:
        refuse("model_type", ", ".join(ARCHITECTURES))
    for key in ("rope_scaling", "rope_parameters"):
        scaling = raw.get(key) or {}
        if scaling.get("rope_type", scaling.get("type", "default")) != "default":
            refuse(key, "no scaling")
    if raw.get("hidden_act", "silu") != "silu":
        refuse("hidden_act", "silu")
    if raw.get("partial_rotary_factor", 1.0) != 1.0:
        refuse("partial_rotary_factor", "1.0")
    if raw.get("quantization_config"):
        refuse("quantization_config", "unquantised weights")
    for key in ("num_experts", "num_local_experts"):
        if raw.get(key):
            refuse(key, "dense layers")


def refuse_sliding_window(raw: dict[str, Any], path: Path) -> None:
    """ValueError when a target's layers do not all attend to the whole context."""
    if set(raw.get("layer_types") or ()) - {"full_attention"}:
        raise ValueError(f"{path}: layer_types other than full_attention are not supported in a target")
    if raw.get("sliding_window") and raw.get("use_sliding_window", True):
        raise ValueError(
            f"{path}: sliding_window = {raw['sliding_window']} is not supported in a target (allowed: null)"
        )


def _token_ids(value: int | list[int] | None) -> frozenset[int]:
    return frozenset() if value is None else frozenset([value] if isinstance(value, int) else value)
