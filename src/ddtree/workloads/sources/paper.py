"""The ten tasks of the DDTree paper (arXiv 2604.12989), worded as in the benchmark of DFlash that it builds on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.workloads.draft import Asked, Draft, Drafts, shares, user
from ddtree.workloads.fetch import commit_of, hub_file
from ddtree.workloads.rows import rows
from ddtree.workloads.sources.mtbench import mtbench

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    repository: str  # data set on the Hugging Face hub
    revision: str  # its commit
    files: tuple[str, ...]
    columns: tuple[str, ...]
    licence: str  # as its card declares it
    wording: Callable[[Row], str]


def _boxed(column: str) -> Callable[[Row], str]:
    return lambda row: f"{row[column]}\nPlease reason step by step, and put your final answer within \\boxed{{}}."


def _humaneval(row: Row) -> str:
    task = "Write a solution to the following problem and make sure that it passes the tests:"
    return f"{task}\n```python\n{row['prompt']}\n```"


def _livecodebench(row: Row) -> str:
    given = bool(row["starter_code"])
    return "\n\n".join(
        (
            "You are an expert Python programmer. You will be given a question (problem specification) and will "
            "generate a correct Python program that matches the specification and passes all tests. You will NOT "
            "return anything except for the program",
            f"### Question:\n{row['question_content']}",
            f"### Format: {'Use the following code structure' if given else 'Write your code in the following format'}:"
            f"\n```python\n{row['starter_code'] or '# YOUR CODE HERE'}\n```",
            "### Answer: (use the provided format with backticks)",
        )
    )


def _alpaca(row: Row) -> str:
    return f"{row['instruction']}\n\nInput:\n{row['input']}" if row["input"] else str(row["instruction"])


TASKS = {
    "math500": Task(
        "HuggingFaceH4/MATH-500",
        "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        ("test.jsonl",),
        ("problem",),
        "no licence declared, MIT for the data set MATH",
        _boxed("problem"),
    ),
    "gsm8k": Task(
        "openai/gsm8k",
        "740312add88f781978c0658806c59bc2815b9866",
        ("main/test-00000-of-00001.parquet",),
        ("question",),
        "MIT licence",
        _boxed("question"),
    ),
    "aime24": Task(
        "HuggingFaceH4/aime_2024",
        "2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        ("data/train-00000-of-00001.parquet",),
        ("problem",),
        "no licence declared",
        _boxed("problem"),
    ),
    "aime25": Task(
        "MathArena/aime_2025",
        "c94da77eb22bbd6439e62a323bec18493a421302",
        ("data/train-00000-of-00001.parquet",),
        ("problem",),
        "CC BY-NC-SA 4.0 licence",
        _boxed("problem"),
    ),
    "humaneval": Task(
        "openai/openai_humaneval",
        "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
        ("openai_humaneval/test-00000-of-00001.parquet",),
        ("prompt",),
        "MIT licence",
        _humaneval,
    ),
    "mbpp": Task(
        "google-research-datasets/mbpp",
        "4bb6404fdc6cacfda99d4ac4205087b89d32030c",
        ("sanitized/test-00000-of-00001.parquet",),
        ("prompt",),
        "CC BY 4.0 licence",
        lambda row: str(row["prompt"]),
    ),
    "livecodebench": Task(
        "livecodebench/code_generation_lite",
        "0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
        ("test.jsonl", *(f"test{i}.jsonl" for i in range(2, 7))),
        ("question_content", "starter_code"),
        "CC licence",
        _livecodebench,
    ),
    "swe-bench-lite": Task(
        "princeton-nlp/SWE-bench_Lite",
        "6ec7bb89b9342f664a54a6e0a6ea6501d3437cc2",
        ("data/test-00000-of-00001.parquet",),
        ("problem_statement",),
        "no licence declared, MIT for SWE-bench",
        lambda row: f"Problem Statement:\n{row['problem_statement']}\nPlease fix the issue described above.",
    ),
    "alpaca": Task(
        "tatsu-lab/alpaca",
        "dce01c9b08f87459cf36a430d809084718273017",
        ("data/train-00000-of-00001-a09b74b3ef9c3b56.parquet",),
        ("instruction", "input"),
        "CC BY-NC 4.0 licence",
        _alpaca,
    ),
}
SUBSETS = (*TASKS, "mt-bench")


def paper(asked: Asked) -> Drafts:
    """Prompts of the task `subset` in an order drawn by the seed; `path` is a copy of its file at hand."""
    name, path = asked.workload.subset, asked.workload.path
    assert name, "the registry asks for a subset"
    if name == "mt-bench":
        return mtbench(Asked(asked.workload.model_copy(update={"subset": None}), asked.warmup, asked.seed))
    task = TASKS[name]
    files = [Path(path)] if path else [hub_file(task.repository, task.revision, file) for file in task.files]
    texts = [task.wording(row) for file in files for row in rows(file, task.columns)]
    drafts = [Draft(f"{name}-{i}", name, (user(text),)) for i, text in enumerate(texts)]
    origin = f"{task.repository} ({commit_of(path, task.revision)}), {task.licence}"
    return shares(asked, asked.random().sample(drafts, len(drafts)), origin)
