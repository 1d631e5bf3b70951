"""Every speed number, from raw records and nowhere else. Seconds and tokens; None for what was not observed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ddtree.bench.records import Request, Run


@dataclass(frozen=True)
class RequestMetrics:
    """TTFT, ITL, TPOT and E2E as in MLPerf and vLLM.

    `itl_s` holds one interval per token after the first chunk: a chunk of n tokens that comes d seconds after the last
    token is n intervals of d/n. TTFT and E2E begin when the request was due, if that was given: a wait for a free slot
    is the user's too. `tpot_s` = (t_last - t_first) / (n - 1), `e2e_s` ends with the last chunk.
    """

    output_tokens: int
    ttft_s: float | None
    itl_s: list[float]
    tpot_s: float | None
    e2e_s: float | None
    e2e_per_token_s: float | None


@dataclass(frozen=True)
class Summary:
    """Of `n` observed values."""

    n: int
    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class RunMetrics:
    """Latencies are those of successful requests. Output throughput counts their tokens only, in tokens per second:
    over the whole run, and over the steady state (None when the run never reached its concurrency)."""

    successes: int
    failures: dict[str, int]
    input_tokens: int
    output_tokens: int
    wall_s: float
    output_throughput: float | None
    steady_s: float | None
    steady_throughput: float | None
    ttft: Summary | None
    itl: Summary | None
    tpot: Summary | None
    e2e: Summary | None

    @property
    def failure_rate(self) -> float | None:
        total = self.successes + sum(self.failures.values())
        return sum(self.failures.values()) / total if total else None


def output_tokens(request: Request) -> int:
    """As the server counts them."""
    return request.chunks[-1][1] if request.chunks else 0


def token_arrivals(request: Request) -> list[tuple[float, int]]:
    """(time, new tokens) of the chunks that brought any; an empty delta's wait belongs to the next token."""
    before = [0, *(tokens for _, tokens in request.chunks)]
    return [(at, tokens - old) for (at, tokens), old in zip(request.chunks, before, strict=False) if tokens > old]


def decode_s(request: Request) -> float | None:
    """From the first token to the last; None with fewer than two arrivals."""
    arrivals = token_arrivals(request)
    return arrivals[-1][0] - arrivals[0][0] if len(arrivals) > 1 else None


def request_metrics(request: Request) -> RequestMetrics:
    arrivals, tokens, decode = token_arrivals(request), output_tokens(request), decode_s(request)
    itl = [
        (at - before) / new for (before, _), (at, new) in itertools.pairwise(arrivals) for _ in range(new)
    ]  # tokens that came with the first one have no interval
    begin = request.sent_s if request.due_s is None else request.due_s
    e2e = request.chunks[-1][0] - begin if arrivals else None
    return RequestMetrics(
        output_tokens=tokens,
        ttft_s=arrivals[0][0] - begin if arrivals else None,
        itl_s=itl,
        tpot_s=decode / (tokens - 1) if decode is not None else None,
        e2e_s=e2e,
        e2e_per_token_s=e2e / tokens if e2e is not None else None,
    )


def run_metrics(run: Run, concurrency: int) -> RunMetrics:
    good = [request for request in run.requests if request.failure is None]
    each = [request_metrics(request) for request in good]
    tokens, wall = sum(m.output_tokens for m in each), run.end_s - run.start_s
    window = steady_window(run.requests, concurrency)
    steady = window[1] - window[0] if window else None
    return RunMetrics(
        successes=len(good),
        failures=dict(Counter(r.failure.type for r in run.requests if r.failure is not None)),
        input_tokens=sum(request.input_tokens for request in good),
        output_tokens=tokens,
        wall_s=wall,
        output_throughput=tokens / wall if good and wall > 0 else None,
        steady_s=steady,
        steady_throughput=tokens_between(good, *window) / steady if good and window and steady else None,
        ttft=summary(m.ttft_s for m in each),
        itl=summary(interval for m in each for interval in m.itl_s),
        tpot=summary(m.tpot_s for m in each),
        e2e=summary(m.e2e_s for m in each),
    )


def summary(values: Iterable[float | None]) -> Summary | None:
    """Over the observed values; None when there are none."""
    seen = np.array([value for value in values if value is not None], dtype=float)
    if not len(seen):
        return None
    p50, p90, p99 = (float(p) for p in np.percentile(seen, (50, 90, 99)))
    return Summary(len(seen), float(seen.mean()), p50, p90, p99)


def steady_window(requests: Sequence[Request], concurrency: int) -> tuple[float, float] | None:
    """From the moment the target concurrency is reached until it is first left.

    In a closed loop a finished conversation makes room for the next at once, so the concurrency holds until the first
    conversation ends after the last one began. None when fewer conversations than `concurrency` were sent, and where
    arrivals were given: nothing holds the concurrency then.
    """
    if any(request.due_s is not None for request in requests):
        return None
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    for request in requests:
        begins[request.conversation] = min(request.sent_s, begins.get(request.conversation, request.sent_s))
        ends[request.conversation] = max(request.done_s, ends.get(request.conversation, request.done_s))
    if len(begins) < concurrency:
        return None
    ordered = sorted(begins.values())
    reached, last_begin = ordered[concurrency - 1], ordered[-1]
    left = min(end for end in ends.values() if end >= last_begin)
    return (reached, left) if left > reached else None


def tokens_between(requests: Iterable[Request], start_s: float, end_s: float) -> int:
    return sum(new for request in requests for at, new in token_arrivals(request) if start_s < at <= end_s)
