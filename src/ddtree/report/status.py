"""Tables about the run itself: what was measured, with which settings, on what, and what failed why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from ddtree.bench.records import Reason
from ddtree.nested import flat
from ddtree.plan.keys import cells
from ddtree.report.results import Results

LOG_LINES = 12  # of a failure's log tail
_IDENTITY = ("pid", "nonce", "port", "started_unix")  # differ between two starts of the same configuration


def arms(results: Results) -> pd.DataFrame:
    """One row per server of the plan: is it measured, and if not, why."""
    rows = []
    for server, config in results.plan.servers.items():
        path, manifest = results.manifests.get(server, ("", None))
        planned = len(cells(results.plan, server))
        measured = sum(1 for s, _, _ in results.cells if s == server)
        reasons = [s.reason for s in manifest.cells.values() if s.reason] if manifest else []
        status = "measured" if measured == planned else "partly" if measured else "failed" if manifest else "not run"
        rows.append(
            {
                "server": server,
                "method": config.method,
                "budget": config.budget,
                "status": status,
                "cells_measured": measured,
                "cells_planned": planned,
                "starts": len(manifest.starts) if manifest else 0,
                "start_s": _start_seconds(results, server),
                "category": reasons[0].category if reasons else "",
                "detail": reasons[0].detail if reasons else "",
                "path": path,
            }
        )
    return pd.DataFrame(rows).astype({"budget": "Int64"})


def _start_seconds(results: Results, server: str) -> float | None:
    """As its first cell recorded it: a manifest knows only the starts of the last run."""
    cell = next((cell for (s, _, _), (_, cell) in results.cells.items() if s == server), None)
    seconds = cell.provenance.get("start_s") if cell else None
    return float(seconds) if isinstance(seconds, int | float) else None


def settings(results: Results) -> pd.DataFrame:
    """One row per server and key: what the plan asked for and what the measured process said it runs with."""
    rows = []
    for server, config in results.plan.servers.items():
        path, effective = _effective(results, server)
        requested = config.model_dump(exclude_none=True)
        for key in sorted(set(requested) | set(effective)):
            if key not in _IDENTITY:
                rows.append(
                    {
                        "server": server,
                        "key": key,
                        "requested": _text(requested.get(key)),
                        "effective": _text(effective.get(key)),
                        "path": path,
                    }
                )
    return pd.DataFrame(rows, columns=["server", "key", "requested", "effective", "path"])


def workloads(results: Results) -> pd.DataFrame:
    """One row per workload: its shape, and the lengths that the baseline really saw."""
    rows = []
    for name, workload in results.plan.workloads.items():
        seen = [
            (path, cell)
            for (server, w, _), (path, cell) in sorted(results.cells.items(), key=lambda kv: kv[0][2])
            if w == name and server == results.plan.baseline
        ]
        done = [r for _, cell in seen for run in cell.runs for r in run.requests if r.failure is None and r.chunks]
        inputs = [r.input_tokens for r in done]
        outputs = [r.chunks[-1][1] for r in done]
        rows.append(
            {
                "workload": name,
                "source": workload.source,
                "role": workload.role,
                "prompts": workload.prompts,
                "turns": workload.turns,
                "repeats": workload.repeats or results.plan.repeats,
                "concurrency": " ".join(str(c) for c in workload.concurrency or results.plan.concurrency),
                "temperature": workload.temperature,
                "max_new_tokens": workload.max_new_tokens,
                "ignore_eos": workload.ignore_eos,
                "input_tokens_min": min(inputs, default=None),
                "input_tokens_mean": _mean(inputs),
                "input_tokens_max": max(inputs, default=None),
                "output_tokens_mean": _mean(outputs),
                "stopped_share": _mean([float(r.finish_reason == "stop") for r in done]),
                "n": len(done),
                "origin": results.prompts[name][1].source if name in results.prompts else "",
                "path": " ".join(path for path, _ in seen),
            }
        )
    return pd.DataFrame(rows)


def failures(results: Results) -> pd.DataFrame:
    """One row per thing without a trustworthy number: a start, a cell, a kind of failed request, a doubtful run, a
    coding cell that could not be graded."""
    columns = ["scope", "server", "workload", "concurrency", "category", "detail", "count", "log_lines", "path"]
    rows = [
        *_failed_starts(results),
        *_failed_cells(results),
        *_failed_requests(results),
        *_ungraded(results),
    ]
    return pd.DataFrame(rows, columns=columns).astype({"concurrency": "Int64"})


def _failed_starts(results: Results) -> Iterator[dict[str, Any]]:
    for server, (path, manifest) in results.manifests.items():
        for start in manifest.starts:
            if not start.ready:
                yield _row("start", server, None, None, start.reason, start.log or path)


def _failed_cells(results: Results) -> Iterator[dict[str, Any]]:
    """Cells that share their reason, as after a start that failed, are one row."""
    for server in results.plan.servers:
        if server not in results.manifests:
            count = len(cells(results.plan, server))
            reason = Reason(category="not_run", detail="the server has no manifest: its session did not run or end")
            yield _row("server", server, None, None, reason, "", count)
            continue
        path, manifest = results.manifests[server]
        groups: dict[str, list[str]] = {}
        for name, status in manifest.cells.items():
            if status.status == "failed":
                reason = status.reason or Reason(category="other", detail="no reason recorded")
                groups.setdefault(reason.model_dump_json(), []).append(name)
        for cell, (file, why) in results.unusable.items():
            if cell.server == server:
                bad = Reason(category="unusable_cell", detail=why)
                yield _row("cell", server, cell.workload, cell.concurrency, bad, file)
        for dumped, names in groups.items():
            reason = Reason.model_validate_json(dumped)
            if len(names) == len(manifest.cells):
                yield _row("server", server, None, None, reason, path, len(names))
            else:
                for name in names:
                    workload, _, concurrency = name.rpartition("/c")
                    yield _row("cell", server, workload, int(concurrency), reason, path)


def _failed_requests(results: Results) -> Iterator[dict[str, Any]]:
    for (server, workload, concurrency), (path, cell) in results.cells.items():
        groups: dict[str, list[str]] = {}
        for run in cell.runs:
            for r in run.requests:
                if r.failure is not None:
                    groups.setdefault(r.failure.type, []).append(r.failure.detail)
        for kind, details in groups.items():
            reason = Reason(category=kind, detail=next((d for d in details if d), ""))
            yield _row("request", server, workload, concurrency, reason, path, len(details))
        slow = [run for run in cell.runs if run.client.distorted]
        if slow:
            lag = max(run.client.loop_lag_max_s for run in slow)
            detail = f"the load client itself stalled for up to {lag:.3f} s; its times are too long"
            reason = Reason(category="client_distorted", detail=detail)
            yield _row("client", server, workload, concurrency, reason, path, len(slow))
        disturbed = [run for run in cell.runs if run.client.disturbed]
        if disturbed:
            cores = max(run.client.foreign_cores or 0.0 for run in disturbed)
            detail = f"other processes used up to {cores:.2f} cores meanwhile; the times are not the server's own"
            reason = Reason(category="disturbed", detail=detail)
            yield _row("client", server, workload, concurrency, reason, path, len(disturbed))
        unflushed = [run for run in cell.runs if not run.flushed]
        if unflushed:
            reason = Reason(category="cache_not_flushed", detail="the prefix cache was not empty when the run began")
            yield _row("client", server, workload, concurrency, reason, path, len(unflushed))


def _ungraded(results: Results) -> Iterator[dict[str, Any]]:
    for server, (path, coding) in results.coding.items():
        for ungraded in coding.ungraded:
            workload, _, concurrency = ungraded.cell.rpartition("/c")
            yield _row("coding", server, workload, int(concurrency), ungraded.reason, path)


def provenance(results: Results) -> pd.DataFrame:
    """One row per fact about machine, software and revision; a fact that changed during the run has several rows."""
    seen: dict[tuple[str, str], list[str]] = {}
    for path, cell in results.cells.values():
        started = datetime.fromtimestamp(cell.started_unix, UTC).isoformat(timespec="seconds")
        facts = [(key, _text(value)) for key, value in flat(cell.provenance)]
        facts += [("schema_version", str(cell.schema_version)), ("started", started)]
        for key, value in facts:
            seen.setdefault((key, value), []).append(path)
    rows = [
        {"key": key, "value": value, "cells": len(paths), "path": paths[0]}
        for (key, value), paths in sorted(seen.items())
    ]
    return pd.DataFrame(rows, columns=["key", "value", "cells", "path"])


def _row(
    scope: str, server: str, workload: str | None, concurrency: int | None, reason: Reason | None, path: str, n: int = 1
) -> dict[str, Any]:
    reason = reason or Reason(category="other", detail="no reason recorded")
    return {
        "scope": scope,
        "server": server,
        "workload": workload,
        "concurrency": concurrency,
        "category": reason.category,
        "detail": reason.detail,
        "count": n,
        "log_lines": "\n".join(reason.log_tail[-LOG_LINES:]),
        "path": path,
    }


def _effective(results: Results, server: str) -> tuple[str, Mapping[str, object]]:
    for (s, _, _), (path, cell) in results.cells.items():
        if s == server:
            return path, cell.effective
    return "", {}


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_text(v) for v in value)
    return str(value)


def _mean(values: list[Any]) -> float | None:
    return sum(values) / len(values) if values else None
