"""A measured cell in a few words, for the line that a waiting person reads."""

from __future__ import annotations

from ddtree.bench.acceptance import acceptance
from ddtree.bench.metrics import run_metrics
from ddtree.bench.records import Cell


def describe(cell: Cell) -> str:
    """'43.1 tok/s  tau 4.12': output throughput over all runs, and the pooled acceptance length if it drafts."""
    runs = [run_metrics(run, cell.concurrency) for run in cell.runs]
    rate = sum(run.output_tokens for run in runs) / sum(run.wall_s for run in runs)
    accepted = acceptance(request for run in cell.runs for request in run.requests)
    return f"{rate:6.1f} tok/s" + (f"  tau {accepted.tau:.2f}" if accepted else "")
