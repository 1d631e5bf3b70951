"""What two load clients say about the same server: ratios with intervals, and words for what sets them apart.

How sglang.bench_serving (0.5.16, `--backend sglang`) differs from ddtree.bench, read in its source: its E2E, and with
it its TPOT, ends with `[DONE]` instead of the last token; its wall time ends after a call of /server_info; it opens a
new connection for every request, within the TTFT. Token counts (`meta_info.completion_tokens`), ITL (a chunk of n
tokens is n intervals) and the closed loop are the same. Its per-request details undo the first exactly; the other two
are measured (`Costs`) and subtracted. What then remains is a disagreement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from ddtree.bench.metrics import Summary, run_metrics, summary, token_arrivals
from ddtree.bench.records import Run
from ddtree.bench.stats import Interval, noise_floor, paired_ratio

LIMIT = 0.01  # a larger relative difference needs an explanation
THROUGHPUT = "output throughput"
LATENCIES = ("TTFT", "ITL", "TPOT", "E2E")
METRICS = (THROUGHPUT, *(f"{name} {kind}" for name in LATENCIES for kind in ("mean", "median")))  # tokens/s, seconds


class BadResult(ValueError):
    """A client's result cannot be compared; says in a line why."""


@dataclass(frozen=True)
class Costs:
    """Seconds that sglang.bench_serving adds and ddtree.bench does not."""

    connection_s: float  # of a new connection, per request
    server_info_s: float  # of one call of /server_info, per run


@dataclass(frozen=True)
class Pass:
    """One pass over the prompts through one client. Lists are per request, in the order of the prompts."""

    reported: dict[str, float]  # by METRICS, as the client defines them
    corrected: dict[str, float]  # the same by ddtree.bench's definitions, without `Costs`
    output_tokens: list[int]
    chunks: list[int]  # that brought tokens; empty when the client does not say
    texts: list[str]
    cached_tokens: int
    done_s: float = 0.0  # mean wait from the last token to the end of the stream, where E2E includes it


@dataclass(frozen=True)
class Row:
    """One metric over all rounds; ratios are ours / theirs, with intervals over rounds."""

    metric: str
    ours: float
    theirs: float
    ratio: Interval
    corrected: Interval
    floor: float  # the largest relative difference between neighbouring rounds of our own client
    words: str


def from_run(run: Run, concurrency: int) -> Pass:
    """Our client's pass. BadResult when a request failed or told no latency."""
    if failures := [request.failure for request in run.requests if request.failure is not None]:
        first = f"{failures[0].type} {failures[0].detail}"
        raise BadResult(f"ddtree.bench: {len(failures)} of {len(run.requests)} requests failed; {first}")
    of = run_metrics(run, concurrency)
    values = _table(of.output_throughput, {"TTFT": of.ttft, "ITL": of.itl, "TPOT": of.tpot, "E2E": of.e2e})
    return Pass(
        reported=values,
        corrected=values,
        output_tokens=[request.chunks[-1][1] for request in run.requests],
        chunks=[len(token_arrivals(request)) for request in run.requests],
        texts=[request.text for request in run.requests],
        cached_tokens=sum(request.cached_tokens or 0 for request in run.requests),
    )


def from_bench_serving(result: Mapping[str, object], prompts: int, concurrency: int, costs: Costs) -> Pass:
    """A line of `--output-file` with `--output-details --cache-report`. BadResult names a missing key or a failure."""
    try:
        return _from_bench_serving(dict(result), prompts, concurrency, costs)
    except KeyError as missing:
        raise BadResult(f"sglang.bench_serving: no key {missing} in its result: another release?") from None


def _from_bench_serving(result: dict[str, Any], prompts: int, concurrency: int, costs: Costs) -> Pass:
    if result["completed"] != prompts:
        said = next((error.strip().splitlines()[-1] for error in result["errors"] if error.strip()), "no error given")
        raise BadResult(f"sglang.bench_serving: {result['completed']} of {prompts} requests succeeded; {said}")
    if not all(result["ttfts"]):
        raise BadResult("sglang.bench_serving: a request without text, whose tokens it counts as asked for")
    reported = {THROUGHPUT: float(result["output_throughput"])}
    for name in LATENCIES:
        key = "e2e_latency" if name == "E2E" else name.lower()
        for kind in ("mean", "median"):
            reported[f"{name} {kind}"] = result[f"{kind}_{key}_ms"] / 1e3
    ttfts = np.array(result["ttfts"], dtype=float)
    decodes = np.array([sum(intervals) for intervals in result["itls"]])
    tokens: list[int] = result["output_lens"]
    wall = result["duration"] - costs.server_info_s - costs.connection_s * prompts / min(concurrency, prompts)
    corrected = _table(
        sum(tokens) / wall,
        {
            "TTFT": summary(ttfts - costs.connection_s),
            "ITL": summary(interval for intervals in result["itls"] for interval in intervals),
            "TPOT": summary(d / (n - 1) for d, n in zip(decodes, tokens, strict=True) if d > 0),
            "E2E": summary(ttfts + decodes - costs.connection_s),
        },
    )
    return Pass(
        reported=reported,
        corrected=corrected,
        output_tokens=tokens,
        chunks=[],
        texts=result["generated_texts"],
        cached_tokens=sum(result["cached_tokens"]),
        done_s=reported["E2E mean"] - float((ttfts + decodes).mean()),
    )


def _table(throughput: float | None, latencies: Mapping[str, Summary | None]) -> dict[str, float]:
    missing = [name for name, values in latencies.items() if values is None]
    if throughput is None or missing:
        raise BadResult(f"nothing observed for {', '.join(missing) or THROUGHPUT}: are the answers of one chunk?")
    seen = {name: values for name, values in latencies.items() if values is not None}
    means = {f"{name} mean": values.mean for name, values in seen.items()}
    return {THROUGHPUT: throughput} | means | {f"{name} median": values.p50 for name, values in seen.items()}


def compare(ours: Sequence[Pass], theirs: Sequence[Pass], costs: Costs) -> list[Row]:
    """One row per metric, over the rounds (at least two)."""
    done_s = fmean(p.done_s for p in theirs)
    rows = []
    for metric in METRICS:
        mine = [p.reported[metric] for p in ours]
        ratio = paired_ratio(mine, [p.reported[metric] for p in theirs])
        corrected = paired_ratio(mine, [p.corrected[metric] for p in theirs])
        floor = noise_floor([a / b for a, b in pairwise(mine)])
        words = explain(ratio, corrected, floor, cause(metric, costs, done_s))
        rows.append(Row(metric, fmean(mine), fmean(p.reported[metric] for p in theirs), ratio, corrected, floor, words))
    return rows


def cause(metric: str, costs: Costs, done_s: float) -> str:
    """What bench_serving adds to this metric, with its measured size; empty when it adds nothing."""
    connection = f"a new connection per request ({costs.connection_s * 1e3:.2f} ms)"
    done = f"the wait for [DONE] ({done_s * 1e3:.2f} ms)"
    return {
        THROUGHPUT: f"its wall time includes {connection} and /server_info ({costs.server_info_s * 1e3:.2f} ms)",
        "TTFT": f"it includes {connection}",
        "TPOT": f"it includes {done}",
        "E2E": f"it includes {connection} and {done}",
    }.get(metric if metric == THROUGHPUT else metric.split()[0], "")


def explain(ratio: Interval, corrected: Interval, floor: float, cause: str) -> str:
    """In words: whether the clients agree, and if not, why."""
    if _off(ratio) <= LIMIT:
        settled = ratio.low >= 1 - LIMIT and ratio.high <= 1 + LIMIT
        return "agrees" if settled else "not settled: within 1 %, but its interval is not; take more rounds"
    if cause and _off(corrected) <= LIMIT:
        return f"explained: {cause}"
    if corrected.low <= 1 <= corrected.high or _off(corrected) <= floor:
        return f"not told from noise: our own rounds differ by up to {floor:.1%}"
    return f"NOT EXPLAINED{f'; {cause}, which leaves {corrected.value - 1:+.1%}' if cause else ''}"


def _off(ratio: Interval) -> float:
    return abs(ratio.value - 1)


def remarks(ours: Sequence[Pass], theirs: Sequence[Pass], prompt_tokens: int) -> list[str]:
    """Whether both did the same work: tokens counted, answers given, prefixes found in the cache."""
    said = []
    mine, other = ([n for p in side for n in p.output_tokens] for side in (ours, theirs))
    if mine == other:
        said.append(f"both count {sum(mine)} output tokens, the same for every request")
    else:
        chunks = [n for p in ours for n in p.chunks]
        why = " (it counts chunks as tokens)" if sum(other) == sum(chunks) else ""
        said.append(f"DIFFERENT output tokens: ours {sum(mine)}, as the server counts; theirs {sum(other)}{why}")
    pairs = [(a, b) for one, two in zip(ours, theirs, strict=True) for a, b in zip(one.texts, two.texts, strict=True)]
    said.append(f"{sum(a == b for a, b in pairs)} of {len(pairs)} answers are equal")
    cached = [sum(p.cached_tokens for p in side) / (prompt_tokens * len(side)) for side in (ours, theirs)]
    apart = "DIFFERENT prefix cache hits" if abs(cached[0] - cached[1]) > LIMIT else "prefix cache hits"
    said.append(f"{apart}: {cached[0]:.1%} of the prompt tokens ours, {cached[1]:.1%} theirs")
    return said
