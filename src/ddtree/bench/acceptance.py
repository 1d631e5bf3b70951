"""Acceptance of speculative decoding, pooled over requests, and the two factors of its speed-up.

speed-up of decoding = tau x (autoregressive ms per token) / (ms per verify step)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ddtree.bench.metrics import decode_s, output_tokens
from ddtree.bench.records import Request


@dataclass(frozen=True)
class Acceptance:
    """`tau`: tokens emitted per verify step, the bonus token included, after stop and length trimming.
    `by_depth[d - 1]`: the share of `steps` steps that accepted at least d drafted tokens. `shadow_*` is what a tree
    that was built but not verified would have accepted; its tau is untrimmed."""

    requests: int
    steps: int
    tau: float
    by_depth: list[float]
    verified_nodes_per_step: float
    shadow_tau: float | None = None
    shadow_by_depth: list[float] | None = None


@dataclass(frozen=True)
class StepTime:
    """Decoding time of `requests` requests, divided by their steps. An autoregressive step emits one token."""

    requests: int
    steps: int
    tokens_per_step: float
    ms_per_step: float

    @property
    def ms_per_token(self) -> float:
        return self.ms_per_step / self.tokens_per_step


def acceptance(requests: Iterable[Request]) -> Acceptance | None:
    """Of the successful requests that took at least one verify step; None when there are none."""
    taken = [(r, s) for r in requests if r.failure is None and (s := r.speculation) is not None and s.verify_steps]
    if not taken:
        return None
    counters = [s for _, s in taken]
    steps = sum(s.verify_steps for s in counters)
    emitted = sum(output_tokens(r) - s.first_tokens for r, s in taken)
    shadow = pooled(s.shadow_histogram for s in counters if s.shadow_histogram is not None)
    return Acceptance(
        requests=len(taken),
        steps=steps,
        tau=emitted / steps,
        by_depth=at_least(pooled(s.histogram for s in counters)),
        verified_nodes_per_step=sum(s.verified_nodes for s in counters) / steps,
        shadow_tau=1 + sum(d * n for d, n in enumerate(shadow)) / sum(shadow) if sum(shadow) else None,
        shadow_by_depth=at_least(shadow) if sum(shadow) else None,
    )


def step_time(requests: Iterable[Request]) -> StepTime | None:
    """Pooled over the successful requests whose decoding was observed (at least two arrivals of tokens)."""
    count, tokens, steps, seconds = 0, 0, 0, 0.0
    for request in requests:
        decode = decode_s(request) if request.failure is None else None
        if decode is None:
            continue
        speculation = request.speculation
        emitted = output_tokens(request) - (speculation.first_tokens if speculation else 1)
        count += 1
        tokens += emitted
        steps += speculation.verify_steps if speculation else emitted
        seconds += decode
    return StepTime(count, steps, tokens / steps, 1000 * seconds / steps) if steps else None


def decode_speedup(arm: StepTime, baseline: StepTime) -> float:
    """Times faster per decoded token: tokens per step over the step's relative cost."""
    return arm.tokens_per_step * baseline.ms_per_token / arm.ms_per_step


def pooled(histograms: Iterable[Sequence[int]]) -> list[int]:
    """Sum of histograms of different lengths."""
    return [sum(column) for column in zip_longest(*histograms, fillvalue=0)]


def at_least(histogram: Sequence[int]) -> list[float]:
    """Element d - 1: the share of entries at index d or above, for d = 1, 2, ..."""
    total = sum(histogram)
    return [sum(histogram[depth:]) / total for depth in range(1, len(histogram))] if total else []
