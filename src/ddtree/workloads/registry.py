"""The names that a plan may give as `source`."""

from __future__ import annotations

from ddtree.workloads.draft import Source, WorkloadError
from ddtree.workloads.sources.agentic import agentic_data, agentic_debug
from ddtree.workloads.sources.held_out import held_out
from ddtree.workloads.sources.human_eval import code_context, code_start, human_eval
from ddtree.workloads.sources.jsonl import jsonl

SOURCES: dict[str, Source] = {
    "held_out": held_out,
    "code_context": code_context,
    "code_start": code_start,
    "agentic_debug": agentic_debug,
    "agentic_data": agentic_data,
    "human_eval": human_eval,
    "jsonl": jsonl,
}


def source(name: str) -> Source:
    try:
        return SOURCES[name]
    except KeyError:
        raise WorkloadError(f"source: {name} is unknown; allowed: {', '.join(SOURCES)}") from None
