"""What the engine cannot serve is refused at load, or when a request is added, in one line that names the culprit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from engines import make_engine
from safetensors.torch import load_file, save_file
from tiny import tiny_pair

from ddtree.engine.api import GenRequest, Sampling


def refusal(pair: tuple[Path, Path], method: str = "autoregressive", **settings: object) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        make_engine(pair, method, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "mixtral"),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("rope_parameters", {"rope_type": "llama3"}),
        ("sliding_window", 512),
        ("layer_types", ["full_attention", "sliding_attention", "full_attention"]),
        ("hidden_act", "gelu"),
        ("num_experts", 8),
        ("quantization_config", {"bits": 4}),
        ("partial_rotary_factor", 0.5),
    ],
)
def test_unsupported_target_configuration(tmp_path: Path, key: str, value: object) -> None:
    message = refusal(tiny_pair(tmp_path, **{key: value}))  # type: ignore[arg-type]
    assert str(tmp_path / "target" / "config.json") in message
    assert key in message


def test_a_window_that_is_switched_off_is_none(tmp_path: Path) -> None:
    config: dict[str, object] = {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}
    make_engine(tiny_pair(tmp_path, **config))  # type: ignore[arg-type]


def test_tensors_that_are_missing_misshapen_or_unknown(tmp_path: Path) -> None:
    pair = tiny_pair(tmp_path)
    path = pair[0] / "model.safetensors"
    tensors = load_file(path)
    save_file({k: v for k, v in tensors.items() if k != "model.norm.weight"}, path)
    assert "model.norm.weight is missing" in refusal(pair)
    save_file(tensors | {"model.norm.weight": torch.ones(3)}, path)
    assert "[3], expected [32]" in refusal(pair)
    save_file(tensors | {"model.layers.0.self_attn.sinks": torch.ones(3)}, path)
    assert "model.layers.0.self_attn.sinks" in refusal(pair)
    path.write_bytes(b"not a checkpoint")
    assert str(path) in refusal(pair)
    path.unlink()
    assert str(path) in refusal(pair)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": 16}, "hidden_size"),
        ({"vocab_size": 99}, "vocab_size"),
        ({"num_target_layers": 30}, "num_target_layers"),
        ({"dflash_config": {"mask_token_id": 0, "target_layer_ids": [0, 3]}}, "target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 5000, "target_layer_ids": [0, 2]}}, "mask_token_id"),
        ({"dflash_config": {"mask_token_id": 0}}, "target_layer_ids"),
        ({"dflash_config": None}, "dflash_config"),
        ({"block_size": 1}, "block_size"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ],
)
def test_a_drafter_that_does_not_fit(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    pair = tiny_pair(tmp_path)
    path = pair[1] / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    message = refusal(pair, "dflash")
    assert str(path) in message
    assert named in message


@pytest.mark.parametrize(
    ("method", "settings", "named"),
    [
        ("beam", {}, "autoregressive, prompt_lookup, dflash, ddtree"),
        ("autoregressive", {"budget": 7}, "budget belongs to method ddtree"),
        ("ddtree", {}, "needs a budget"),
        ("ddtree", {"budget": 0}, "budget is 0"),
        ("ddtree", {"budget": 256}, "1 to 255"),
        ("dflash", {"drafter": None}, "needs a drafter"),
        ("dflash", {"draft_tokens": 8}, "1 to 7"),
        ("dflash", {"shadow": True}, "shadow belongs to method ddtree"),
        ("dflash", {"drafter": Path("/nowhere")}, "/nowhere/config.json"),
        ("autoregressive", {"target": Path("/nowhere")}, "/nowhere/config.json"),
        ("autoregressive", {"dtype": "int8"}, "float32, bfloat16"),
        ("autoregressive", {"device": "tpu"}, "cpu, cuda"),
        ("autoregressive", {"context_length": 5000}, "exceeds the target's 4096"),
        ("autoregressive", {"max_running_requests": 0}, "max_running_requests"),
    ],
)
def test_settings(
    pair: tuple[Path, Path], tmp_path: Path, method: str, settings: dict[str, object], named: str
) -> None:
    assert named in refusal(tiny_pair(tmp_path), method, **settings)


@pytest.mark.parametrize(
    ("ids", "sampling", "named"),
    [
        ([], Sampling(4), "input_ids is empty"),
        ([1, 8], Sampling(4), "0..7"),
        ([-1], Sampling(4), "0..7"),
        ([1], Sampling(0), "max_new_tokens"),
        ([1] * 500, Sampling(13), "context_length 512"),
        ([1], Sampling(4, temperature=-1.0), "temperature"),
        ([1], Sampling(4, temperature=float("nan")), "temperature"),
        ([1], Sampling(4, top_p=0.0), "top_p"),
    ],
)
def test_requests(pair: tuple[Path, Path], ids: list[int], sampling: Sampling, named: str) -> None:
    engine = make_engine(pair)
    with pytest.raises(ValueError, match=r"\S") as caught:
        engine.add(GenRequest("r", ids, sampling))
    assert named in str(caught.value)
    assert not engine.has_work


def test_a_request_id_is_used_once_at_a_time(pair: tuple[Path, Path]) -> None:
    engine = make_engine(pair)
    engine.add(GenRequest("r", [1], Sampling(4)))
    with pytest.raises(ValueError, match="already in use"):
        engine.add(GenRequest("r", [1], Sampling(4)))
