from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree.models import ModelFiles, Tokenizer
from ddtree.plan.schema import Workload
from ddtree.workloads import WorkloadError, build, read, spec_hash, write

CODE = {"source": "code_context", "prompts": 2}


@settings(max_examples=15, deadline=None)
@given(length=st.integers(200, 3000), seed=st.integers(0, 10**6))
def test_prompt_has_exactly_the_length_asked_for(length: int, seed: int, tiny: ModelFiles) -> None:
    prompts = build(seed, "w", Workload(**CODE, prompt_tokens=length), "m", tiny)
    assert {len(c.turns[0]) for c in (*prompts.conversations, *prompts.warmup)} == {length}


@pytest.mark.model
@settings(max_examples=10, deadline=None)
@given(length=st.integers(120, 2000), seed=st.integers(0, 10**6))
def test_length_is_exact_where_tokens_merge(length: int, seed: int, smollm2: ModelFiles) -> None:
    prompts = build(seed, "w", Workload(**CODE, prompt_tokens=length), "m", smollm2)
    tokenizer = Tokenizer(smollm2.target)
    for conversation in (*prompts.conversations, *prompts.warmup):
        (ids,) = conversation.turns
        assert len(ids) == length
        # These ids are what the text really encodes to, not a cut list of ids.
        assert tokenizer.encode(tokenizer.decode(ids, skip_special_tokens=False)) == ids


@pytest.mark.model
@pytest.mark.parametrize(("source", "length"), [("code_start", 60), *(("code_context", n) for n in (1024, 4096, 8192))])
def test_context_ladder_is_exact_under_the_real_tokenizer(source: str, length: int, smollm2: ModelFiles) -> None:
    prompts = build(0, "w", Workload(source=source, prompts=4, prompt_tokens=length), "m", smollm2)
    assert [len(c.turns[0]) for c in prompts.conversations] == [length] * 4
    assert len({tuple(c.turns[0]) for c in prompts.conversations}) == 4


def test_equal_seeds_give_equal_prompts_and_others_do_not(tiny: ModelFiles) -> None:
    workload = Workload(source="human_eval", prompts=5)
    assert build(3, "w", workload, "m", tiny) == build(3, "w", workload, "m", tiny)
    assert build(3, "w", workload, "m", tiny).sha256 != build(4, "w", workload, "m", tiny).sha256
    assert build(3, "w", workload, "m", tiny).sha256 != build(3, "other", workload, "m", tiny).sha256


def test_turns_joined_by_replies_are_the_whole_conversation_in_the_template(tiny: ModelFiles) -> None:
    tokenizer = Tokenizer(tiny.target)
    prompts = build(0, "w", Workload(source="agentic_data", prompts=1, turns=3), "m", tiny)
    first, second, third = prompts.conversations[0].turns
    text = tokenizer.decode(
        first + tokenizer.encode("R1") + second + tokenizer.encode("R2") + third, skip_special_tokens=False
    )
    blocks = text.split("<|im_start|>")
    assert [block.split("\n", 1)[0] for block in blocks[1:]] == [
        "system", "user", "assistant", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert blocks[3] == "assistant\nR1<|im_end|>\n"
    assert blocks[5] == "assistant\nR2<|im_end|>\n"
    assert blocks[7] == "assistant\n"
    assert prompts.stop_token_ids == [tokenizer.inner.token_to_id("<|im_end|>")]


def test_spec_hash_follows_what_shapes_the_prompts_and_nothing_else(tmp_path: Path, tiny: ModelFiles) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text('{"prompt": "a"}\n')
    base = {"source": "jsonl", "path": str(own), "prompts": 2}

    def hashed(seed: int = 0, files: ModelFiles = tiny, **changes: object) -> str:
        return spec_hash(seed, "w", Workload.model_validate({**base, **changes}), "m", files)

    first = hashed()
    same = [hashed(max_new_tokens=9), hashed(concurrency=[4]), hashed(repeats=3), hashed(temperature=0.5)]
    assert set(same) == {first}
    other_weights = tiny.model_copy(update={"target_sha256": "x"})
    assert hashed(files=other_weights) == first
    other_tokenizer = tiny.model_copy(update={"tokenizer_sha256": "x"})
    different = [
        hashed(seed=1),
        hashed(prompts=3),
        hashed(prompt_tokens=50),
        hashed(turns=2),
        hashed(subset="part"),
        hashed(files=other_tokenizer),
    ]
    own.write_text('{"prompt": "b"}\n')
    assert len({first, hashed(), *different}) == len(different) + 2


def test_prompt_set_survives_the_disk(tmp_path: Path, tiny: ModelFiles) -> None:
    prompts = build(0, "w", Workload(source="held_out", prompts=3), "m", tiny)
    write(tmp_path / "w.json", prompts)
    assert read(tmp_path / "w.json") == prompts


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-40], "not JSON"),
        (lambda text: text.replace('"schema_version":1', '"schema_version":99'), "schema_version is 99"),
        (lambda text: text.replace('"turns":[[1,', '"turns":[[2,', 1), "do not match their sha256"),
        (lambda text: text.replace('"workload"', '"werkload"'), "workload: Field required"),
        (lambda text: "[]", "schema_version is None"),
    ],
)
def test_damaged_prompt_set_is_refused_by_name(tmp_path: Path, tiny: ModelFiles, damage, message: str) -> None:
    path = tmp_path / "w.json"
    write(path, build(0, "w", Workload(source="held_out", prompts=3), "m", tiny))
    damaged = damage(path.read_text())
    assert damaged != path.read_text()
    path.write_text(damaged)
    with pytest.raises(WorkloadError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_missing_prompt_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"w\.json: No such file"):
        read(tmp_path / "w.json")


def test_tiny_tokenizer_counts_bytes(tiny: ModelFiles) -> None:
    """The other tests of exact lengths lean on this."""
    assert len(Tokenizer(tiny.target).encode("<|im_start|>äb")) == 4
    assert json.loads((tiny.target / "config.json").read_text())["eos_token_id"] == 2
