"""A measured cell in a few words, for the line that a waiting person reads."""

from __future__ import annotations

from ddtree.bench.records import Cell


def describe(cell: Cell) -> str:
    """'43.1 tok/s  tau 4.12': output throughput of all runs together, and the pooled acceptance length."""
    requests = [request for run in cell.runs for request in run.requests if not request.failure]
    tokens = sum(request.chunks[-1][1] for request in requests if request.chunks)
    seconds = sum(run.end_s - run.start_s for run in cell.runs)
    text = f"{tokens / seconds:6.1f} tok/s"
    counters = [request.speculation for request in requests if request.speculation]
    steps = sum(counter.verify_steps for counter in counters)
    if not steps:
        return text
    emitted = sum(sum((drafts + 1) * n for drafts, n in enumerate(counter.histogram)) for counter in counters)
    return f"{text}  tau {emitted / steps:.2f}"
