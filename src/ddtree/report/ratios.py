"""Comparisons: speed-ups over the baseline and the chain, the best server without selection bias, the noise floor.

A pair is the same turn of the same conversation in the same repeat, answered by both sides. A speed-up is the time per
output token of the reference over that of the server, so above 1 is faster. Pairs with a failed side are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from ddtree.bench.stats import paired_ratio
from ddtree.plan.schema import Plan

TIMES = {"e2e": "seconds_per_token", "decode": "tpot_s"}  # metric -> column of the requests table
_PAIR = ["workload", "concurrency", "repeat", "conversation", "turn"]
_SPEEDUP_COLUMNS = [
    "server", "method", "against", "reference", "workload", "concurrency", "category", "metric",
    "ratio", "low", "high", "n", "workloads", "verdict", "path",
]  # fmt: skip
_BEST_COLUMNS = [
    "concurrency", "against", "metric", "server", "server_second", "candidates", "ratio", "low", "high", "n", "path",
]  # fmt: skip
_NOISE_COLUMNS = ["server", "workload", "metric", "ratio", "low", "high", "floor", "n", "verdict", "path"]


def speedups(requests: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """One row per server, reference, workload (or all), concurrency, prompt category (or all) and metric."""
    rows = []
    for against, reference in references(plan).items():
        for server in plan.servers:
            if server == reference:
                continue
            for metric, column in TIMES.items():
                pairs = _pairs(requests, server, reference, column)
                for where, group in _groups(pairs):
                    rows.append(
                        {
                            "server": server,
                            "method": plan.servers[server].method,
                            "against": against,
                            "reference": reference,
                            **where,
                            "metric": metric,
                            **_ratio(group),
                        }
                    )
    return pd.DataFrame(rows, columns=_SPEEDUP_COLUMNS)


def references(plan: Plan) -> dict[str, str]:
    return {"baseline": plan.baseline} | ({"chain": plan.chain} if plan.chain else {})


def best(requests: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """The best server against the baseline, and the best tree against the chain, by two-fold selection.

    Conversations are split alternately. The server with the highest speed-up on one half is measured on the other, both
    ways round; `ratio` pools the two held-out halves. `server` is the choice on the first half, `server_second` on the
    second. Only servers that answered every workload which any candidate answered compete.
    """
    rows = []
    for against, reference in references(plan).items():
        candidates = [
            s for s, config in plan.servers.items()
            if s != reference and (against == "baseline" or config.method == "ddtree")
        ]  # fmt: skip
        for metric, column in TIMES.items():
            pairs = {s: _pairs(requests, s, reference, column) for s in candidates}
            for concurrency in sorted(set(requests["concurrency"])):
                here = {s: p[p["concurrency"] == concurrency] for s, p in pairs.items()}
                row = _two_fold({s: p for s, p in here.items() if len(p)})
                if row is not None:
                    rows.append({"concurrency": concurrency, "against": against, "metric": metric, **row})
    return pd.DataFrame(rows, columns=_BEST_COLUMNS)


def noise(requests: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """A/A: one repeat of a server against its next, same cell, same turns. `floor` is how far the interval leaves 1."""
    rows = []
    for server in plan.servers:
        mine = _good(requests, server)
        for metric, column in TIMES.items():
            first = mine.assign(repeat=mine["repeat"] + 1)
            pairs = _join(first, mine, column)
            named = [(name, group) for name, group in pairs.groupby("workload", sort=False)]
            for name, group in [("all", pairs), *named]:
                if len(group):
                    row = _ratio(group)
                    floor = max(abs(row["low"] - 1), abs(row["high"] - 1))
                    rows.append({"server": server, "workload": name, "metric": metric, "floor": floor, **row})
    return pd.DataFrame(rows, columns=_NOISE_COLUMNS)


def _good(requests: pd.DataFrame, server: str) -> pd.DataFrame:
    return requests[(requests["server"] == server) & (requests["role"] == "load") & (requests["failure"] == "")]


def _pairs(requests: pd.DataFrame, server: str, reference: str, column: str) -> pd.DataFrame:
    return _join(_good(requests, reference), _good(requests, server), column)


def _join(reference: pd.DataFrame, server: pd.DataFrame, column: str) -> pd.DataFrame:
    """Columns `reference` and `server` [seconds per token], one row per pair in which both were observed."""
    left = reference[[*_PAIR, column, "path"]].rename(columns={column: "reference", "path": "reference_path"})
    right = server[[*_PAIR, "category", column, "path"]].rename(columns={column: "server"})
    return left.merge(right, on=_PAIR).dropna(subset=["reference", "server"])


def _groups(pairs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Each workload, and all of them, at each concurrency; the latter also by category."""
    for concurrency, here in pairs.groupby("concurrency", sort=True):
        for name, group in [("all", here), *here.groupby("workload", sort=False)]:
            yield {"workload": name, "concurrency": concurrency, "category": "all"}, group
        for category, group in here.groupby("category", sort=True):
            yield {"workload": "all", "concurrency": concurrency, "category": category}, group


def _ratio(pairs: pd.DataFrame) -> dict[str, Any]:
    result = paired_ratio(pairs["reference"].to_numpy(), pairs["server"].to_numpy())
    paths = dict.fromkeys([*pairs["path"], *pairs["reference_path"]])
    return {
        "ratio": result.value, "low": result.low, "high": result.high, "n": result.n,
        "workloads": pairs["workload"].nunique(), "verdict": "",
        "path": " ".join(paths),
    }  # fmt: skip


def _two_fold(pairs: dict[str, pd.DataFrame]) -> dict[str, Any] | None:
    if not pairs:
        return None
    most = max(p["workload"].nunique() for p in pairs.values())
    pairs = {s: p for s, p in pairs.items() if p["workload"].nunique() == most}
    names = sorted({(w, c) for p in pairs.values() for w, c in zip(p["workload"], p["conversation"], strict=True)})
    if len(names) < 2:
        return None
    fold = {name: i % 2 for i, name in enumerate(names)}
    chosen, held_out = [], []
    halves = {
        s: [p[[fold[k] == half for k in zip(p["workload"], p["conversation"], strict=True)]] for half in (0, 1)]
        for s, p in pairs.items()
    }
    for half in (0, 1):
        scores = {
            s: h[half]["reference"].sum() / h[half]["server"].sum() for s, h in halves.items() if len(h[half])
        }
        winner = max(scores, key=lambda s: scores[s])
        chosen.append(winner)
        held_out.append(halves[winner][1 - half])
    row = _ratio(pd.concat(held_out))
    return {"server": chosen[0], "server_second": chosen[1], "candidates": len(pairs), **row}


