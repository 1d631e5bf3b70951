"""What two load clients say about the same server: ratios with intervals, and words for what sets them apart.

A client's figures are kept twice: as it reports them, and corrected: by ddtree.bench's definitions and without what the
client is known and measured to add. What then remains is a disagreement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from ddtree.bench.metrics import Summary, run_metrics, token_arrivals
from ddtree.bench.records import Run
from ddtree.bench.stats import Interval, noise_floor, paired_ratio

LIMIT = 0.01  # a larger relative difference needs an explanation
THROUGHPUT = "output throughput"
LATENCIES = ("TTFT", "ITL", "TPOT", "E2E")
METRICS = (THROUGHPUT, *(f"{name} {kind}" for name in LATENCIES for kind in ("mean", "median")))  # tokens/s, seconds


class BadResult(ValueError):
    """A client's result cannot be compared; says in a line why."""


@dataclass(frozen=True)
class Pass:
    """One pass over the prompts through one client. Lists are per request, in the order of the prompts."""

    reported: dict[str, float]  # by METRICS, as the client defines them; what it has no equal of is left out
    corrected: dict[str, float]
    output_tokens: list[int]
    chunks: list[int] | None = None  # that brought tokens
    texts: list[str] | None = None
    cached_tokens: int | None = None
    extra_s: dict[str, float] = field(default_factory=dict)  # what was corrected for, by name


@dataclass(frozen=True)
class Row:
    """One metric over all rounds; ratios are ours / theirs, with intervals over rounds."""

    metric: str
    ours: float
    theirs: float
    ratio: Interval
    corrected: Interval
    floor: float  # the largest relative difference between neighbouring rounds of one client
    words: str


def from_run(run: Run, concurrency: int) -> Pass:
    """Our client's pass. BadResult when a request failed or told no latency."""
    if failures := [request.failure for request in run.requests if request.failure is not None]:
        first = f"{failures[0].type} {failures[0].detail}"
        raise BadResult(f"ddtree.bench: {len(failures)} of {len(run.requests)} requests failed; {first}")
    of = run_metrics(run, concurrency)
    values = table(of.output_throughput, {"TTFT": of.ttft, "ITL": of.itl, "TPOT": of.tpot, "E2E": of.e2e})
    return Pass(
        reported=values,
        corrected=values,
        output_tokens=[request.chunks[-1][1] for request in run.requests],
        chunks=[len(token_arrivals(request)) for request in run.requests],
        texts=[request.text for request in run.requests],
        cached_tokens=sum(request.cached_tokens or 0 for request in run.requests),
    )


def table(throughput: float | None, latencies: Mapping[str, Summary | None]) -> dict[str, float]:
    """Values by METRICS. BadResult when something was not observed."""
    missing = [name for name, values in latencies.items() if values is None]
    if throughput is None or missing:
        raise BadResult(f"nothing observed for {', '.join(missing) or THROUGHPUT}: are the answers of one chunk?")
    seen = {name: values for name, values in latencies.items() if values is not None}
    means = {f"{name} mean": values.mean for name, values in seen.items()}
    return {THROUGHPUT: throughput} | means | {f"{name} median": values.p50 for name, values in seen.items()}


def compare(ours: Sequence[Pass], theirs: Sequence[Pass], causes: Mapping[str, str]) -> list[Row]:
    """One row per metric that both have, over the rounds (at least two). `causes` says by latency (or THROUGHPUT) what
    the other client adds, with sizes in braces that are filled from the means of its `extra_s`, in milliseconds."""
    sizes = {name: f"{fmean(p.extra_s[name] for p in theirs) * 1e3:.2f} ms" for name in theirs[0].extra_s}
    rows = []
    for metric in (m for m in METRICS if m in theirs[0].reported):
        mine, other = ([p.reported[metric] for p in side] for side in (ours, theirs))
        ratio = paired_ratio(mine, other)
        corrected = paired_ratio(mine, [p.corrected[metric] for p in theirs])
        floor = noise_floor([a / b for side in (mine, other) for a, b in pairwise(side)])
        cause = causes.get(metric.removesuffix(" mean").removesuffix(" median"), "").format(**sizes)
        words = explain(ratio, corrected, floor, cause)
        rows.append(Row(metric, fmean(mine), fmean(other), ratio, corrected, floor, words))
    return rows


def explain(ratio: Interval, corrected: Interval, floor: float, cause: str) -> str:
    """In words: whether the clients agree, and if not, why."""
    if _off(ratio) <= LIMIT:
        settled = ratio.low >= 1 - LIMIT and ratio.high <= 1 + LIMIT
        return "agrees" if settled else "not settled: within 1 %, but its interval is not; take more rounds"
    if cause and _off(corrected) <= LIMIT:
        return f"explained: {cause}"
    if corrected.low <= 1 <= corrected.high or _off(corrected) <= floor:
        return f"not told from noise: rounds of one client differ by up to {floor:.1%}"
    return f"NOT EXPLAINED{f'; {cause}, which leaves {corrected.value - 1:+.1%}' if cause else ''}"


def _off(ratio: Interval) -> float:
    return abs(ratio.value - 1)


def remarks(ours: Sequence[Pass], theirs: Sequence[Pass], prompt_tokens: int) -> list[str]:
    """Whether both did the same work: tokens counted, answers given, prefixes found in the cache, as far as told."""
    said = []
    mine, other = ([n for p in side for n in p.output_tokens] for side in (ours, theirs))
    if mine == other:
        said.append(f"both count {sum(mine)} output tokens, the same for every request")
    else:
        why = " (it counts chunks as tokens)" if sum(other) == sum(n for p in ours for n in p.chunks or []) else ""
        said.append(f"DIFFERENT output tokens: ours {sum(mine)}, as the server counts; theirs {sum(other)}{why}")
    both = list(zip(ours, theirs, strict=True))
    if pairs := [pair for a, b in both if a.texts and b.texts for pair in zip(a.texts, b.texts, strict=True)]:
        said.append(f"{sum(a == b for a, b in pairs)} of {len(pairs)} answers are equal")
    found = [(a.cached_tokens, b.cached_tokens) for a, b in both if None not in (a.cached_tokens, b.cached_tokens)]
    if found:
        shares = [sum(n or 0 for n in side) / (prompt_tokens * len(found)) for side in zip(*found, strict=True)]
        apart = "DIFFERENT prefix cache hits" if abs(shares[0] - shares[1]) > LIMIT else "prefix cache hits"
        said.append(f"{apart}: {shares[0]:.1%} of the prompt tokens ours, {shares[1]:.1%} theirs")
    return said
