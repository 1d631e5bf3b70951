"""A padded pair must be the old one in everything but its cost."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from engines import make_engine, run
from safetensors.torch import load_file
from tiny import tiny_pair

from ddtree.engine.api import Sampling
from ddtree.engine.target import Span, Target
from ddtree.models import ModelError, tensors
from ddtree.models.checks import check_folder, check_pair
from ddtree.models.pad import pad
from ddtree.plan.schema import Pad
from ddtree.tree import chain

PROMPTS = [[5, 1, 7, 7, 3], [2], list(range(40, 60))]
GREEDY = Sampling(max_new_tokens=40, ignore_eos=True)
METHODS: list[tuple[str, dict[str, object]]] = [
    ("dflash", {}),
    ("dflash", {"draft_window": 3}),
    ("ddtree", {"budget": 15, "topk": 3}),
]


@pytest.fixture(scope="module", params=[(4, 1), (4, 3), (16, 2)], ids=lambda p: f"width{p[0]}-layers{p[1]}")
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Path, Path], ...]:
    folder = tmp_path_factory.mktemp("pair")
    # An eps that matters beside the mean squares shows whether it was scaled rightly, per-head norms included.
    old = tiny_pair(folder, rms_norm_eps=0.02, attention_bias=True)
    _set(old[1] / "config.json", rms_norm_eps=0.05)
    width, layers = request.param
    target, drafter = pad(*old, folder / "padded", Pad(width=width, layers=layers, dtype="float32"))
    assert drafter
    return old, (target, drafter)


def _set(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_new_pair_is_a_usable_one(pairs: tuple[tuple[Path, Path], ...]) -> None:
    target, drafter = pairs[1]
    check_folder(target, tokenizer=True)
    check_folder(drafter, tokenizer=False)
    check_pair(target, drafter)
    old, new = (json.loads((pair[0] / "config.json").read_text()) for pair in pairs)
    assert new["hidden_size"] % old["hidden_size"] == 0
    assert new["num_key_value_heads"] % 8 == 0
    assert new["num_attention_heads"] * old["num_key_value_heads"] == (
        new["num_key_value_heads"] * old["num_attention_heads"]
    )


def test_logits_and_taps_are_the_same(pairs: tuple[tuple[Path, Path], ...]) -> None:
    outputs = []
    for target, drafter in pairs:
        model = Target(target, 128, torch.float32, torch.device("cpu"))
        taps = json.loads((drafter / "config.json").read_text())["dflash_config"]["target_layer_ids"]
        logits, features = model.forward([Span(model.new_cache(64), chain(PROMPTS[2][0], PROMPTS[2][1:]), 0)], taps)
        assert features is not None
        outputs.append((logits, features.view(len(features), len(taps), -1)))
    (logits, features), (padded_logits, padded_features) = outputs
    hidden = features.shape[-1]
    torch.testing.assert_close(padded_logits, logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(padded_features[..., :hidden], features, rtol=1e-4, atol=1e-4)
    assert not padded_features[..., hidden:].any()


@pytest.mark.parametrize(("method", "options"), METHODS, ids=str)
def test_tokens_and_acceptance_are_the_same(
    pairs: tuple[tuple[Path, Path], ...], method: str, options: dict[str, object]
) -> None:
    old, new = (run(make_engine(pair, method, **options), PROMPTS, GREEDY) for pair in pairs)
    assert [a.ids for a in new] == [a.ids for a in old]
    assert [a.counters for a in new] == [a.counters for a in old]


def test_the_files_are_made_once_and_again_when_the_wish_changes(tmp_path: Path) -> None:
    old = tiny_pair(tmp_path)
    target, _ = pad(*old, tmp_path / "padded", Pad())
    made = target.stat().st_ino
    assert pad(*old, tmp_path / "padded", Pad())[0].stat().st_ino == made
    pad(*old, tmp_path / "padded", Pad(layers=2))
    assert json.loads((target / "config.json").read_text())["num_hidden_layers"] == 6


def test_bfloat16_files_hold_what_torch_would_round_to(tmp_path: Path) -> None:
    old = tiny_pair(tmp_path)
    target, drafter = pad(*old, tmp_path / "padded", Pad())
    assert drafter
    whole = load_file(old[0] / "model.safetensors")["model.embed_tokens.weight"]
    new = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(new[:, : whole.shape[1]], whole.bfloat16())
    again = tensors.Reader(target).read("model.embed_tokens.weight")
    assert np.array_equal(again, new.float().numpy())


def test_large_checkpoints_are_cut_into_files(tmp_path: Path) -> None:
    arrays = {f"t{i}": np.full((3, 5), i, np.float32) for i in range(5)}
    entries = [tensors.Entry(name, a.shape, lambda a=a: a) for name, a in arrays.items()]
    tensors.write(tmp_path, entries, "float32", shard_bytes=130)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 300
    assert sorted(set(index["weight_map"].values())) == sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    for name, array in arrays.items():
        assert np.array_equal(load_file(tmp_path / index["weight_map"][name])[name].numpy(), array)


def test_what_cannot_be_padded_is_named(tmp_path: Path) -> None:
    target, _ = tiny_pair(tmp_path, model_type="gemma3")
    with pytest.raises(ModelError, match="model_type gemma3 cannot be padded; allowed: dense llama"):
        pad(target, None, tmp_path / "padded", Pad())
