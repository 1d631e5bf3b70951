"""Tables of requests, cells and throughput. The numbers themselves come from ddtree.bench.metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from ddtree.bench.metrics import RequestMetrics, decode_s, request_metrics, run_metrics, summary
from ddtree.bench.records import Cell, Request
from ddtree.bench.stats import Interval, mean_interval, verdict
from ddtree.report.results import Results

_REQUEST_COLUMNS = [
    "server", "method", "workload", "role", "concurrency", "repeat", "conversation", "turn", "category",
    "input_tokens", "output_tokens", "ttft_s", "tpot_s", "e2e_s", "e2e_per_token_s", "decode_s", "decode_tokens",
    "finish_reason", "failure", "cached_tokens", "verify_steps", "verified_nodes", "path",
]  # fmt: skip
_CELL_COLUMNS = [
    "server", "method", "workload", "role", "concurrency", "repeat", "metric", "unit",
    "n", "failures", "value", "low", "high", "p50", "p90", "p99", "verdict", "path",
]  # fmt: skip
_THROUGHPUT_COLUMNS = ["server", "method", "workload", "role", "concurrency", "value", "low", "high", "n", "path"]


def requests(results: Results) -> pd.DataFrame:
    """One row per request of every cell, quality cells included. `failure` is empty for an answered one."""
    rows = [
        _request(results, path, cell, run.repeat, request)
        for path, cell in results.cells.values()
        for run in cell.runs
        for request in run.requests
    ]
    frame = pd.DataFrame(rows, columns=_REQUEST_COLUMNS)
    times = [c for c in _REQUEST_COLUMNS if c.endswith("_s")]
    counts = ["cached_tokens", "verify_steps", "verified_nodes"]
    return frame.astype({**dict.fromkeys(times, "float64"), **dict.fromkeys(counts, "Int64")})


def _request(results: Results, path: str, cell: Cell, repeat: int, request: Request) -> dict[str, Any]:
    derived = request_metrics(request)
    speculation = request.speculation
    return {
        **_identity(results, cell),
        "repeat": repeat,
        "conversation": request.conversation,
        "turn": request.turn,
        "category": results.category(cell.workload, request.conversation),
        "input_tokens": request.input_tokens,
        "output_tokens": derived.output_tokens,
        "ttft_s": derived.ttft_s,
        "tpot_s": derived.tpot_s,
        "e2e_s": derived.e2e_s,
        "e2e_per_token_s": derived.e2e_per_token_s,
        "decode_s": decode_s(request),
        "decode_tokens": max(0, derived.output_tokens - 1),
        "finish_reason": request.finish_reason or "",
        "failure": request.failure.type if request.failure else "",
        "cached_tokens": request.cached_tokens,
        "verify_steps": speculation.verify_steps if speculation else None,
        "verified_nodes": speculation.verified_nodes if speculation else None,
        "path": path,
    }


def cells(results: Results) -> pd.DataFrame:
    """One row per server, workload, concurrency, repeat (missing: all of them) and metric. Latencies are means of
    successful requests with a bootstrap interval and percentiles; throughput is one number per run."""
    rows = [row for path, cell in results.cells.values() for row in _cell(results, path, cell)]
    frame = pd.DataFrame(rows, columns=_CELL_COLUMNS)
    return frame.astype({"repeat": "Int64", **dict.fromkeys(["value", "low", "high", "p50", "p90", "p99"], "float64")})


def _cell(results: Results, path: str, cell: Cell) -> Iterator[dict[str, Any]]:
    parts: list[tuple[int | None, list[Request]]] = [(run.repeat, run.requests) for run in cell.runs]
    parts.append((None, [request for run in cell.runs for request in run.requests]))
    per_run = [run_metrics(run, cell.concurrency) for run in cell.runs]
    for repeat, taken in parts:
        good = [request_metrics(r) for r in taken if r.failure is None]
        failures = len(taken) - len(good)
        same = {**_identity(results, cell), "repeat": repeat, "failures": failures, "path": path}
        for metric, unit, values in _latencies(good):
            yield {**same, "metric": metric, "unit": unit, **_described(values)}
        runs = [m for m, run in zip(per_run, cell.runs, strict=True) if repeat in (None, run.repeat)]
        for metric in ("output_throughput", "steady_throughput"):
            observed = [v for m in runs if (v := getattr(m, metric)) is not None]
            if observed:
                value = mean_interval(observed)
                yield {**same, "metric": metric, "unit": "tokens/s", **_bounds(value), "n": len(observed)}


def _latencies(good: Sequence[RequestMetrics]) -> Iterator[tuple[str, str, list[float]]]:
    for metric in ("ttft_s", "tpot_s", "e2e_s", "e2e_per_token_s"):
        yield metric, "s", [v for m in good if (v := getattr(m, metric)) is not None]
    yield "itl_s", "s", [v for m in good for v in m.itl_s]
    yield "output_tokens", "tokens", [float(m.output_tokens) for m in good]


def _described(values: list[float]) -> dict[str, Any]:
    overview = summary(values)
    if overview is None:
        return {"n": 0, "verdict": "no observation"}
    interval = mean_interval(values)
    return {**_bounds(interval), "p50": overview.p50, "p90": overview.p90, "p99": overview.p99}


def _bounds(interval: Interval) -> dict[str, Any]:
    return {
        "value": interval.value, "low": interval.low, "high": interval.high, "n": interval.n,
        "verdict": verdict(interval),
    }  # fmt: skip


def throughput(results: Results) -> pd.DataFrame:
    """Output tokens per second of the whole run: mean, smallest and largest over the repeats (no range for one)."""
    rows = []
    for path, cell in results.cells.values():
        observed = [v for run in cell.runs if (v := run_metrics(run, cell.concurrency).output_throughput) is not None]
        if observed:
            several = len(observed) > 1
            rows.append(
                {
                    **_identity(results, cell),
                    "value": sum(observed) / len(observed),
                    "low": min(observed) if several else None,
                    "high": max(observed) if several else None,
                    "n": len(observed),
                    "path": path,
                }
            )
    return pd.DataFrame(rows, columns=_THROUGHPUT_COLUMNS).astype({"low": "float64", "high": "float64"})


def _identity(results: Results, cell: Cell) -> dict[str, Any]:
    return {
        "server": cell.server,
        "method": results.plan.servers[cell.server].method,
        "workload": cell.workload,
        "role": cell.role,
        "concurrency": cell.concurrency,
    }
