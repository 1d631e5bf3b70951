"""Prompts gathered for measuring speculative decoding: SPEED-Bench (NVIDIA) and Spec-Bench."""

from __future__ import annotations

from pathlib import Path

from ddtree.workloads.draft import Asked, Draft, Drafts, spread
from ddtree.workloads.fetch import commit_of, hub_file, web_file
from ddtree.workloads.rows import questions

SPEED_REVISION = "487aa718444e816458d1a0a52bfce7a454285cf4"
SPEED_SUBSETS = ("qualitative", *(f"throughput_{n}k" for n in (1, 2, 8, 16, 32)))
SPEC_REVISION = "fd2c1cd7d2201ef71db4c5f4e455008f017967bf"
SPEC_URL = f"https://raw.githubusercontent.com/hemingkx/Spec-Bench/{SPEC_REVISION}/data/spec_bench/question.jsonl"
# Spec-Bench counts MT-Bench's categories as one task, multi-turn conversation.
_OTHER_TASKS = ("translation", "summarization", "qa", "math_reasoning", "rag")
SPEC_SUBSETS = ("mt_bench", *_OTHER_TASKS)
_WITHHELD = "FULL BENCHMARK DATA SHOULD BE FETCHED"  # instead of texts that SPEED-Bench may not pass on


def speed_bench(asked: Asked) -> Drafts:
    """Rows whose text the data set carries, spread over its categories; `path` is a copy completed by its own script.

    arXiv 2604.09557.
    """
    name = asked.workload.subset or SPEED_SUBSETS[0]
    own = asked.workload.path
    path = Path(own) if own else hub_file("nvidia/SPEED-Bench", SPEED_REVISION, f"{name}/test-00000-of-00001.parquet")
    drafts = [draft for draft in questions(path, "speed") if not _withheld(draft)]
    commit = commit_of(own, SPEED_REVISION)
    return spread(asked, drafts, f"nvidia/SPEED-Bench {name} ({commit}), NVIDIA evaluation data set licence")


def spec_bench(asked: Asked) -> Drafts:
    """Questions spread over the six tasks, or of the task `subset`. arXiv 2401.07851."""
    own = asked.workload.path
    path = Path(own) if own else web_file(SPEC_URL, f"spec-bench-{SPEC_REVISION[:12]}.jsonl")
    drafts = [draft for draft in questions(path, "spec") if asked.workload.subset in (None, _task(draft.category))]
    commit = commit_of(own, SPEC_REVISION)
    return spread(asked, drafts, f"Spec-Bench ({commit}), Apache-2.0 licence; its texts have licences of their own")


def _withheld(draft: Draft) -> bool:
    return any(_WITHHELD in text for text in (draft.opening[0]["content"], *draft.later))


def _task(category: str) -> str:
    return category if category in _OTHER_TASKS else "mt_bench"
