"""Readers of data sets that are downloaded, on small files of the same form given as `path`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ddtree.bench.records import PromptSet
from ddtree.models import ModelFiles, Tokenizer
from ddtree.plan.schema import Workload
from ddtree.workloads import WorkloadError, build
from ddtree.workloads.rows import rows
from ddtree.workloads.sources import spec_benches

BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."
PAPER: dict[str, tuple[dict[str, object], str]] = {  # task -> a row as the data set has it, the prompt it becomes
    "math500": ({"problem": "1+1?", "solution": "2", "level": 1}, f"1+1?{BOXED}"),
    "gsm8k": ({"question": "How many?", "answer": "#### 2"}, f"How many?{BOXED}"),
    "aime24": ({"id": 60, "problem": "Find n.", "answer": "025"}, f"Find n.{BOXED}"),
    "aime25": ({"problem_idx": 1, "problem": "Find m.", "answer": 70}, f"Find m.{BOXED}"),
    "humaneval": (
        {"task_id": "HumanEval/0", "prompt": "def f():", "test": ""},
        "Write a solution to the following problem and make sure that it passes the tests:\n```python\ndef f():\n```",
    ),
    "mbpp": ({"task_id": 2, "prompt": "Write a function.", "test_list": ["assert True"]}, "Write a function."),
    "livecodebench": (
        {"question_content": "Sum.", "starter_code": "", "private_test_cases": "x"},
        "### Question:\nSum.\n\n### Format: Write your code in the following format:\n```python\n# YOUR CODE HERE\n```"
        "\n\n### Answer: (use the provided format with backticks)",
    ),
    "swe-bench-lite": (
        {"instance_id": "a", "problem_statement": "It fails."},
        "Problem Statement:\nIt fails.\nPlease fix the issue described above.",
    ),
    "alpaca": ({"instruction": "Sort.", "input": "3 1", "output": "1 3"}, "Sort.\n\nInput:\n3 1"),
}


def _parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def _texts(prompts: PromptSet, files: ModelFiles) -> list[str]:
    tokenizer = Tokenizer(files.target)
    return [tokenizer.decode(c.turns[0], skip_special_tokens=False) for c in (*prompts.conversations, *prompts.warmup)]


@pytest.mark.parametrize("task", PAPER)
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_task_of_the_paper_is_worded_as_there(task: str, form: str, tmp_path: Path, tiny: ModelFiles) -> None:
    row, prompt = PAPER[task]
    path = _parquet(tmp_path / "part.parquet", [row] * 3)
    if form == "jsonl":
        path = tmp_path / "part.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for _ in range(3)))
    prompts = build(0, "w", Workload(source="paper", subset=task, path=str(path), prompts=2), "m", tiny)
    assert len(_texts(prompts, tiny)) == 3
    assert all(text.endswith(f"{prompt}<|im_end|>\n<|im_start|>assistant\n") for text in _texts(prompts, tiny))
    assert path.name in prompts.source
    assert "sha256" in prompts.source


def test_given_starter_code_is_part_of_a_livecodebench_prompt(tmp_path: Path, tiny: ModelFiles) -> None:
    row = {"question_content": "Sum.", "starter_code": "class Solution:"}
    path = _parquet(tmp_path / "part.parquet", [row] * 2)
    prompts = build(0, "w", Workload(source="paper", subset="livecodebench", path=str(path), prompts=1), "m", tiny)
    assert "Use the following code structure:\n```python\nclass Solution:\n```" in _texts(prompts, tiny)[0]


def test_alpaca_without_input_is_the_instruction_alone(tmp_path: Path, tiny: ModelFiles) -> None:
    path = _parquet(tmp_path / "part.parquet", [{"instruction": "Sing.", "input": ""}] * 2)
    prompts = build(0, "w", Workload(source="paper", subset="alpaca", path=str(path), prompts=1), "m", tiny)
    assert "user\nSing.<|im_end|>" in _texts(prompts, tiny)[0]


def _questions(categories: list[str], turns: list[str]) -> list[dict[str, Any]]:
    return [
        {"question_id": f"{i}", "category": category, "turns": [f"{turn} {i}" for turn in turns]}
        for i, category in enumerate(categories)
    ]


def test_speed_bench_leaves_out_withheld_texts_and_is_spread_over_categories(tmp_path: Path, tiny: ModelFiles) -> None:
    withheld = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    whole = _questions(["coding"] * 6 + ["math"] * 4, ["first", "second"])
    half = [{**row, "question_id": f"w{i}"} for i, row in enumerate(_questions(["coding"] * 9, ["shown", withheld]))]
    path = _parquet(tmp_path / "test.parquet", half + whole)
    prompts = build(0, "w", Workload(source="speed_bench", path=str(path), prompts=6, turns=2), "m", tiny)
    assert Counter(c.category for c in prompts.conversations) == {"coding": 3, "math": 3}
    assert {len(c.turns) for c in prompts.conversations} == {2}
    assert not any("shown" in text or withheld in text for text in _texts(prompts, tiny))
    with pytest.raises(WorkloadError, match="prompts: 9 is too many for source speed_bench; allowed: 1 to 8"):
        build(0, "w", Workload(source="speed_bench", path=str(path), prompts=9), "m", tiny)


def test_spec_bench_counts_the_categories_of_mt_bench_as_one_task(tmp_path: Path, tiny: ModelFiles) -> None:
    path = tmp_path / "question.jsonl"
    made = _questions(["writing", "stem", "coding", "rag", "rag", "rag"], ["q"])
    path.write_text("".join(json.dumps(row) + "\n" for row in made))

    def categories(subset: str | None, n: int) -> set[str]:
        workload = Workload(source="spec_bench", subset=subset, path=str(path), prompts=n)
        return {c.category for c in build(0, "w", workload, "m", tiny).conversations}

    assert categories("rag", 2) == {"rag"}
    assert categories("mt_bench", 2) < {"writing", "stem", "coding"}
    assert categories(None, 4) == {"writing", "stem", "coding", "rag"}


def test_subset_of_speed_bench_is_part_of_the_file_that_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: ModelFiles
) -> None:
    path, asked = _parquet(tmp_path / "t.parquet", _questions(["low"] * 3, ["q"])), []
    monkeypatch.setattr(spec_benches, "hub_file", lambda *what: asked.append(what) or path)
    for subset in (None, "throughput_8k"):
        build(0, "w", Workload(source="speed_bench", subset=subset, prompts=2), "m", tiny)
    assert asked == [
        ("nvidia/SPEED-Bench", spec_benches.SPEED_REVISION, f"{config}/test-00000-of-00001.parquet")
        for config in ("qualitative", "throughput_8k")
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"no", r"a\.parquet: not a Parquet file: "),
        ("a.jsonl", b'{"question": "q"}\n{', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", b"[1]", r"a\.jsonl, line 1: not a JSON object"),
        ("a.jsonl", b'{"text": "q"}', r"a\.jsonl, line 1: no column question; found: text"),
        ("a.csv", b"question", r"a\.csv: of no known form; allowed: \.parquet, \.jsonl"),
        ("gone/a.jsonl", None, r"a\.jsonl: cannot be read: No such file"),
    ],
)
def test_file_of_another_form_is_one_line_with_its_name(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(WorkloadError, match=message) as caught:
        list(rows(tmp_path / name, ("question",)))
    assert "\n" not in str(caught.value)


def test_missing_column_of_a_parquet_file_is_named_with_those_found(tmp_path: Path) -> None:
    path = _parquet(tmp_path / "a.parquet", [{"text": "q", "id": 1}])
    with pytest.raises(WorkloadError, match=r"a\.parquet: no column question; found: text, id"):
        list(rows(path, ("question",)))
