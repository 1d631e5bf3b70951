"""config.json of a Llama-, Qwen3- or Qwen3-Next-type decoder, reduced to what the forward pass needs.

The rest is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DENSE = ("llama", "mistral", "qwen2", "qwen3")
HYBRID = "qwen3_next"


@dataclass(frozen=True)
class Hybrid:
    """What a decoder has whose layers are partly Gated DeltaNets: recurrent state in place of keys and values."""

    attends: tuple[bool, ...]  # per layer: whether it is one of attention
    rotary: int  # leading dimensions of a head that carry its position
    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    kernel: int  # of the causal convolution over queries, keys and values

    @property
    def channels(self) -> int:
        """Columns that the convolution runs over: queries, keys, values."""
        return 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim


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
    hybrid: Hybrid | None = None

    @property
    def rotary(self) -> int:
        return self.hybrid.rotary if self.hybrid else self.head_dim

    @property
    def norm_offset(self) -> float:
        """Qwen3-Next stores the weights of its RMS norms minus one."""
        return 1.0 if self.hybrid else 0.0

    @property
    def attention_layers(self) -> int:
        return sum(self.hybrid.attends) if self.hybrid else self.layers

    def slots(self) -> list[int]:
        """Per layer its place among the layers of its kind, which is where a cache keeps what belongs to it."""
        kinds = self.hybrid.attends if self.hybrid else (True,) * self.layers
        return [kinds[:i].count(kind) for i, kind in enumerate(kinds)]

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
            hybrid=_hybrid(raw, path) if raw["model_type"] == HYBRID else None,
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

    if raw.get("model_type") not in (*DENSE, HYBRID):
        refuse("model_type", ", ".join((*DENSE, HYBRID)))
    for key in ("rope_scaling", "rope_parameters"):
        scaling = raw.get(key) or {}
        if scaling.get("rope_type", scaling.get("type", "default")) != "default":
            refuse(key, "no scaling")
    if raw.get("hidden_act", "silu") != "silu":
        refuse("hidden_act", "silu")
    if raw["model_type"] != HYBRID and raw.get("partial_rotary_factor", 1.0) != 1.0:
        refuse("partial_rotary_factor", "1.0")
    if raw.get("quantization_config"):
        refuse("quantization_config", "unquantised weights")
    for key in ("num_experts", "num_local_experts"):
        if raw.get(key):
            refuse(key, "dense layers")


def _hybrid(raw: dict[str, Any], path: Path) -> Hybrid:
    layers = raw["num_hidden_layers"]
    kinds = raw.get("layer_types") or [
        "linear_attention" if (i + 1) % raw.get("full_attention_interval", 4) else "full_attention"
        for i in range(layers)
    ]
    if len(kinds) != layers:
        raise ValueError(f"{path}: layer_types names {len(kinds)} layers, num_hidden_layers {layers}")
    found = Hybrid(
        attends=tuple(kind == "full_attention" for kind in kinds),
        rotary=int(raw["head_dim"] * raw.get("partial_rotary_factor", 0.25)),
        k_heads=int(raw["linear_num_key_heads"]),
        v_heads=int(raw["linear_num_value_heads"]),
        k_dim=int(raw["linear_key_head_dim"]),
        v_dim=int(raw["linear_value_head_dim"]),
        kernel=int(raw["linear_conv_kernel_dim"]),
    )
    if found.v_heads % found.k_heads:
        raise ValueError(f"{path}: linear_num_value_heads must be a multiple of linear_num_key_heads")
    return found


def refuse_sliding_window(raw: dict[str, Any], path: Path) -> None:
    """ValueError when a target has layers of attention that do not see the whole context."""
    known = {"full_attention"} | ({"linear_attention"} if raw["model_type"] == HYBRID else set())
    if set(raw.get("layer_types") or ()) - known:
        raise ValueError(f"{path}: layer_types other than {', '.join(sorted(known))} are not supported in this target")
    if raw.get("sliding_window") and raw.get("use_sliding_window", True):
        raise ValueError(
            f"{path}: sliding_window = {raw['sliding_window']} is not supported in a target (allowed: null)"
        )


def _token_ids(value: int | list[int] | None) -> frozenset[int]:
    return frozenset() if value is None else frozenset([value] if isinstance(value, int) else value)
