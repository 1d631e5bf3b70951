"""Tables of acceptance: tokens per verify step, what a step costs, and how deep drafts are accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from ddtree.bench.acceptance import acceptance as pooled
from ddtree.bench.acceptance import decode_speedup, step_time
from ddtree.bench.metrics import output_tokens
from ddtree.bench.records import Request
from ddtree.bench.stats import Interval, paired_ratio
from ddtree.report.results import Results

_COLUMNS = [
    "server", "method", "budget", "workload", "concurrency", "tau", "tau_low", "tau_high", "n", "requests",
    "nodes_per_step", "ms_per_step", "relative_step_time", "decode_speedup", "shadow_tau", "path",
]  # fmt: skip
_DEPTH_COLUMNS = ["server", "method", "workload", "concurrency", "kind", "depth", "share", "low", "high", "n", "path"]
_FLOATS = [
    "tau", "tau_low", "tau_high", "nodes_per_step", "ms_per_step", "relative_step_time", "decode_speedup", "shadow_tau",
]  # fmt: skip

Key = tuple[str, int, str, int]  # workload, repeat, conversation, turn


@dataclass(frozen=True)
class Group:
    """The answered requests of one server at one concurrency, in one load workload or in all of them."""

    server: str
    method: str
    workload: str
    concurrency: int
    requests: Mapping[Key, Request]
    path: str

    @property
    def name(self) -> dict[str, object]:
        return {
            "server": self.server, "method": self.method, "workload": self.workload, "concurrency": self.concurrency,
        }  # fmt: skip


def acceptance(results: Results) -> pd.DataFrame:
    """One row per server, load workload (or all) and concurrency; `n` counts verify steps. The autoregressive baseline
    has a row with one token per step. `relative_step_time` is the time of a step over the baseline's per token, both
    from the answers that server and baseline share; decode_speedup = tau / relative_step_time of those."""
    groups = list(_groups(results))
    baseline = {(g.workload, g.concurrency): g.requests for g in groups if g.server == results.plan.baseline}
    rows = []
    for g in groups:
        other = baseline.get((g.workload, g.concurrency), {})
        shared = g.requests.keys() & other.keys()
        mine, base = step_time(g.requests[k] for k in shared), step_time(other[k] for k in shared)
        every, found = step_time(g.requests.values()), pooled(g.requests.values())
        tau = _tau(g)
        rows.append(
            {
                **g.name,
                "budget": results.plan.servers[g.server].budget,
                "tau": found.tau if found else every.tokens_per_step if every else None,
                "tau_low": tau.low,
                "tau_high": tau.high,
                "n": found.steps if found else every.steps if every else 0,
                "requests": len(g.requests),
                "nodes_per_step": found.verified_nodes_per_step if found else 1.0,
                "ms_per_step": every.ms_per_step if every else None,
                "relative_step_time": mine.ms_per_step / base.ms_per_token if mine and base else None,
                "decode_speedup": decode_speedup(mine, base) if mine and base else None,
                "shadow_tau": found.shadow_tau if found else None,
                "path": g.path,
            }
        )
    return pd.DataFrame(rows, columns=_COLUMNS).astype({"budget": "Int64", **dict.fromkeys(_FLOATS, "float64")})


def depth(results: Results) -> pd.DataFrame:
    """Share of `n` verify steps that accepted at least `depth` drafted tokens, with an interval over conversations.
    Kind `shadow` is what a tree that was built but not verified would have accepted (no interval)."""
    rows = []
    for g in _groups(results):
        found = pooled(g.requests.values())
        if found is None:
            continue
        for d, share in enumerate(found.by_depth, start=1):
            bounds = _depth_bounds(g, d)
            rows.append(
                {**g.name, "kind": "verified", "depth": d, "share": share, "low": bounds.low, "high": bounds.high}
                | {"n": found.steps, "path": g.path}
            )
        for d, share in enumerate(found.shadow_by_depth or [], start=1):
            rows.append({**g.name, "kind": "shadow", "depth": d, "share": share, "n": found.steps, "path": g.path})
    return pd.DataFrame(rows, columns=_DEPTH_COLUMNS).astype(dict.fromkeys(["share", "low", "high"], "float64"))


def _groups(results: Results) -> Iterator[Group]:
    by_workload: dict[tuple[str, int, str], tuple[dict[Key, Request], str]] = {}
    for (server, workload, concurrency), (path, cell) in results.cells.items():
        if cell.role == "load":
            answered = {
                (workload, run.repeat, r.conversation, r.turn): r
                for run in cell.runs
                for r in run.requests
                if r.failure is None
            }
            by_workload[server, concurrency, workload] = (answered, path)
    for server, concurrency in dict.fromkeys((s, c) for s, c, _ in by_workload):
        parts = {w: part for (s, c, w), part in by_workload.items() if (s, c) == (server, concurrency)}
        method = results.plan.servers[server].method
        everything = {k: r for answered, _ in parts.values() for k, r in answered.items()}
        paths = " ".join(path for _, path in parts.values())
        yield Group(server, method, "all", concurrency, everything, paths)
        for workload, (answered, path) in parts.items():
            yield Group(server, method, workload, concurrency, answered, path)


def _tau(group: Group) -> Interval:
    """Emitted tokens over verify steps, resampled by conversation."""
    taken = [(k, r, s) for k, r in group.requests.items() if (s := r.speculation) is not None and s.verify_steps]
    return paired_ratio(
        [output_tokens(r) - s.first_tokens for _, r, s in taken],
        [s.verify_steps for _, _, s in taken],
        groups=[(k[0], k[2]) for k, _, _ in taken],
    )


def _depth_bounds(group: Group, at_least: int) -> Interval:
    taken = [(k, s) for k, r in group.requests.items() if (s := r.speculation) is not None and s.verify_steps]
    return paired_ratio(
        [sum(s.histogram[at_least:]) for _, s in taken],
        [s.verify_steps for _, s in taken],
        groups=[(k[0], k[2]) for k, _ in taken],
    )
