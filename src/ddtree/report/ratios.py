"""Comparisons: speed-ups over the baseline and the chain, the best server without selection bias, the noise floor.

A pair is the same turn of the same conversation in the same repeat, answered by both sides. A speed-up is the time per
output token of the reference over that of the server, so above 1 is faster. `n` counts conversations, which are what
the bootstrap resamples; `pairs` counts answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import pandas as pd

from ddtree.bench.stats import Interval, noise_floor, outcome, paired_ratio, prompts_to_settle, verdict
from ddtree.plan.schema import Plan

TIMES = {"e2e": ("e2e_s", "output_tokens"), "decode": ("decode_s", "decode_tokens")}  # metric -> seconds, tokens
_PAIR = ["workload", "concurrency", "repeat", "conversation", "turn"]
_RATIO = ["ratio", "low", "high", "n", "pairs", "verdict", "path"]
_SETTLED = ["outcome", "more_prompts"]
_SPEEDUP = [
    "server", "method", "against", "reference", "workload", "concurrency", "category", "metric", "workloads", *_RATIO,
    *_SETTLED,
]  # fmt: skip
_BEST = ["concurrency", "against", "metric", "server", "server_second", "candidates", *_RATIO, *_SETTLED]
_NOISE = ["kind", "server", "workload", "concurrency", "metric", "comparisons", "floor", *_RATIO]
_FLOATS = dict.fromkeys(["ratio", "low", "high"], "float64")


Pairs = Mapping[tuple[str, str, str, str], pd.DataFrame]  # (against, reference, server, metric) -> a row per pair
Floors = Mapping[str, float]  # metric -> noise floor


def references(plan: Plan) -> dict[str, str]:
    return {"baseline": plan.baseline} | ({"chain": plan.chain} if plan.chain else {})


def comparisons(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """(against, reference, server). Besides `references`, against `width`: each tree against the chain of its model
    that verifies as many tokens as it does, where the plan has one."""
    for against, reference in references(plan).items():
        yield from ((against, reference, server) for server in plan.servers if server != reference)
    for server, tree in plan.servers.items():
        if tree.method == "ddtree":
            same = {"method": "dflash", "draft_tokens": tree.budget, "budget": None, "topk": None, "shadow": False}
            chain = tree.model_copy(update=same)
            yield from (("width", name, server) for name, other in plan.servers.items() if other == chain)


def paired(requests: pd.DataFrame, plan: Plan) -> Pairs:
    """Every server next to each of its references."""
    return {
        (against, reference, server, metric): _join(_good(requests, reference), _good(requests, server), metric)
        for against, reference, server in comparisons(plan)
        for metric in TIMES
    }


def speedups(pairs: Pairs, plan: Plan, floors: Floors) -> pd.DataFrame:
    """One row per server, reference, workload (or all), concurrency, prompt category (or all) and metric. `outcome` is
    what the interval says beyond the noise floor, `more_prompts` how many would settle an open comparison."""
    rows = [
        {
            "server": server,
            "method": plan.servers[server].method,
            "against": against,
            "reference": reference,
            **where,
            "metric": metric,
            "workloads": group["workload"].nunique(),
            **_settled(_ratio(group), floors.get(metric, 0.0)),
        }
        for (against, reference, server, metric), frame in pairs.items()
        for where, group in _groups(frame)
    ]
    return pd.DataFrame(rows, columns=_SPEEDUP).astype({**_FLOATS, "more_prompts": "Int64"})


def best(pairs: Pairs, plan: Plan, floors: Floors) -> pd.DataFrame:
    """The best server against the baseline, and the best tree against the chain, by two-fold selection.

    Conversations are split alternately. The server with the highest speed-up on one half is measured on the other, both
    ways round; `ratio` pools the two held-out halves. `server` is the choice on the first half, `server_second` on the
    second. Only the servers that cover the most workloads compete, so that all are judged on the same prompts; a second
    session of the reference itself does not.
    """
    rows = []
    for against, reference in references(plan).items():
        for metric in TIMES:
            frames = {
                server: frame
                for (a, _, server, m), frame in pairs.items()
                if (a, m) == (against, metric)
                and (against == "baseline" or plan.servers[server].method == "ddtree")
                and plan.servers[server] != plan.servers[reference]
            }
            for concurrency in sorted({c for frame in frames.values() for c in frame["concurrency"]}):
                here = {s: frame[frame["concurrency"] == concurrency] for s, frame in frames.items()}
                row = _two_fold({s: frame for s, frame in here.items() if len(frame)})
                if row is not None:
                    row = _settled(row, floors.get(metric, 0.0))
                    rows.append({"concurrency": concurrency, "against": against, "metric": metric, **row})
    return pd.DataFrame(rows, columns=_BEST).astype({**_FLOATS, "more_prompts": "Int64"})


def noise(requests: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """A/A: the same turns, measured twice. Kind `repeats`: one repeat of a cell over the next, on one server. Kind
    `sessions`: two servers of the plan with equal settings, the first over the second, whose name the row bears; they
    were started apart, so this sees what drifts in between as well.

    A row per cell, one per server over its cells, and one of kind `all` over everything. `floor` is the largest
    relative difference among the `comparisons` cell by cell.
    """
    rows = []
    for metric in TIMES:
        every = []
        for kind, server, pairs in _equal_runs(requests, plan, metric):
            cells = [(key, group) for key, group in pairs.groupby(["workload", "concurrency", "repeat"], sort=False)]
            each = [_ratio(group) for _, group in cells]
            every += each
            same = {"kind": kind, "server": server, "metric": metric}
            for ((workload, concurrency, _), _), row in zip(cells, each, strict=True):
                floor = noise_floor([row["ratio"]])
                rows.append(
                    {**same, "workload": workload, "concurrency": concurrency, "comparisons": 1, "floor": floor, **row}
                )
            if each:
                floor = noise_floor([row["ratio"] for row in each])
                rows.append({**same, "workload": "all", "comparisons": len(each), "floor": floor, **_ratio(pairs)})
        if every:
            where = {"kind": "all", "server": "all", "workload": "all", "metric": metric, "comparisons": len(every)}
            paths = " ".join(dict.fromkeys(path for row in every for path in row["path"].split()))
            floor = noise_floor([row["ratio"] for row in every])
            rows.append({**where, "floor": floor, "n": sum(row["n"] for row in every), "path": paths})
    return pd.DataFrame(rows, columns=_NOISE).astype({"concurrency": "Int64", "pairs": "Int64", **_FLOATS})


def floors(noise: pd.DataFrame) -> Floors:
    """The noise floor of each metric that was measured twice."""
    known = noise[noise["kind"] == "all"]
    return dict(zip(known["metric"], known["floor"], strict=True))


def _equal_runs(requests: pd.DataFrame, plan: Plan, metric: str) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Kind, server and pairs of everything that was measured twice under equal settings."""
    good = {server: _good(requests, server) for server in plan.servers}
    for server, mine in good.items():
        yield "repeats", server, _join(mine.assign(repeat=mine["repeat"] + 1), mine, metric)
    for first, second in combinations(plan.servers, 2):
        if plan.servers[first] == plan.servers[second]:
            yield "sessions", second, _join(good[first], good[second], metric)


def _good(requests: pd.DataFrame, server: str) -> pd.DataFrame:
    return requests[(requests["server"] == server) & (requests["role"] == "load") & (requests["failure"] == "")]


def _join(reference: pd.DataFrame, server: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Seconds and tokens of both sides, one row per pair in which both were observed."""
    seconds, tokens = TIMES[metric]
    both = reference[[*_PAIR, seconds, tokens, "path"]].merge(
        server[[*_PAIR, "category", seconds, tokens, "path"]], on=_PAIR, suffixes=("_reference", "")
    )
    both = both.rename(
        columns={
            f"{seconds}_reference": "reference_s", f"{tokens}_reference": "reference_tokens",
            seconds: "server_s", tokens: "server_tokens",
        }
    )  # fmt: skip
    return both.dropna(subset=["reference_s", "server_s"])


def _groups(pairs: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Each workload, and all of them, at each concurrency; the latter also by category."""
    for concurrency, here in pairs.groupby("concurrency", sort=True):
        for name, group in [("all", here), *here.groupby("workload", sort=False)]:
            yield {"workload": name, "concurrency": concurrency, "category": "all"}, group
        for category, group in here.groupby("category", sort=True):
            yield {"workload": "all", "concurrency": concurrency, "category": category}, group


def _ratio(pairs: pd.DataFrame) -> dict[str, Any]:
    result = paired_ratio(
        pairs["reference_s"].to_numpy(),
        pairs["server_s"].to_numpy(),
        pairs["reference_tokens"].to_numpy(),
        pairs["server_tokens"].to_numpy(),
        groups=list(zip(pairs["workload"], pairs["conversation"], strict=True)),
    )
    return {
        "ratio": result.value,
        "low": result.low,
        "high": result.high,
        "n": result.n,
        "pairs": len(pairs),
        "verdict": verdict(result),
        "path": " ".join(dict.fromkeys([*pairs["path"], *pairs["path_reference"]])),
    }


def _settled(row: dict[str, Any], floor: float) -> dict[str, Any]:
    """`row`, a ratio with its interval, with what it says beyond the noise floor."""
    found = Interval(row["ratio"], row["low"], row["high"], row["n"])
    return {**row, "outcome": outcome(found, floor), "more_prompts": prompts_to_settle(found, floor)}


def _two_fold(pairs: dict[str, pd.DataFrame]) -> dict[str, Any] | None:
    """None without a candidate, or when a half would be empty."""
    most = max((p["workload"].nunique() for p in pairs.values()), default=0)
    pairs = {s: p for s, p in pairs.items() if p["workload"].nunique() == most}
    names = sorted({name for p in pairs.values() for name in _conversations(p)})
    fold = {name: i % 2 for i, name in enumerate(names)}
    halves = {s: [p[[fold[name] == half for name in _conversations(p)]] for half in (0, 1)] for s, p in pairs.items()}
    halves = {s: h for s, h in halves.items() if all(len(part) for part in h)}
    if not halves:
        return None
    chosen = [max(halves, key=lambda s: _speed(halves[s][half])) for half in (0, 1)]
    held_out = pd.concat([halves[winner][1 - half] for half, winner in enumerate(chosen)])
    return {"server": chosen[0], "server_second": chosen[1], "candidates": len(halves), **_ratio(held_out)}


def _conversations(pairs: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(pairs["workload"], pairs["conversation"], strict=True))


def _speed(pairs: pd.DataFrame) -> float:
    reference = pairs["reference_s"].sum() / pairs["reference_tokens"].sum()
    return float(reference / (pairs["server_s"].sum() / pairs["server_tokens"].sum()))
