"""The files that the quality stage writes: coding verdicts of one server, the greedy comparison of all servers."""

from __future__ import annotations

from math import sqrt
from typing import Literal

from ddtree.bench.records import SCHEMA, Reason, Record

Verdict = Literal["passed", "failed", "error", "timeout", "truncated", "no_code"]
VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "error", "timeout", "truncated", "no_code")
Z95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution


class Share(Record):
    """`passed` of `n` with its 95 % Wilson score interval; of nothing the value is unknown, the interval [0, 1]."""

    n: int
    passed: int
    value: float | None
    low: float
    high: float


def wilson(passed: int, n: int) -> Share:
    """Wilson (1927): centre (p + z^2/2n) / (1 + z^2/n), half-width z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n)."""
    if n == 0:
        return Share(n=0, passed=0, value=None, low=0.0, high=1.0)
    p, scale = passed / n, 1 + Z95**2 / n
    centre = (p + Z95**2 / (2 * n)) / scale
    half = Z95 * sqrt(p * (1 - p) / n + Z95**2 / (4 * n * n)) / scale
    return Share(n=n, passed=passed, value=p, low=min(p, max(0.0, centre - half)), high=max(p, min(1.0, centre + half)))


class ProblemVerdict(Record):
    conversation: str
    task_id: str
    verdict: Verdict
    detail: str = ""
    program: str = ""  # what ran; empty when there was nothing to run


class CodingResult(Record):
    """One cell. Only answers are graded; `unanswered` requests failed and are in the cell with their reason."""

    server: str
    workload: str
    concurrency: int
    cell_key: str
    instance: str = ""  # nonce of the server process that gave the answers, as in its speed cells
    sandbox: str  # level of isolation that the programs ran under
    counts: dict[Verdict, int]
    rate: Share
    unanswered: int
    problems: list[ProblemVerdict]


class Ungraded(Record):
    cell: str  # '<workload>/c<N>'
    reason: Reason


class ServerCoding(Record):
    schema_version: int = SCHEMA
    server: str
    results: list[CodingResult]
    ungraded: list[Ungraded]


Comparison = Literal["arm", "repeats", "concurrency"]
Difference = Literal["tie", "overrun", "bug", "unscored"]


class Divergence(Record):
    """The first difference of one answer from the one it is compared with, at the same input.

    `baseline_token` belongs to the latter (of a control, the server's own). A token is None where that answer had
    already ended. `gap` is the baseline's log-probability gap in nats between the two tokens, teacher-forced; with
    `at_least` it is a lower bound.
    """

    comparison: Comparison
    server: str
    workload: str
    concurrency: int
    repeat: int
    conversation: str
    turn: int
    position: int
    baseline_token: int | None
    token: int | None
    gap: float | None
    at_least: bool = False
    verdict: Difference
    detail: str = ""


class Agreement(Record):
    """Counts of answers. compared = identical + tie + overrun + bug + unscored.

    `overrun`: the same tokens up to the end-of-text token at which the baseline stopped, and then more up to the token
    limit: decoding is right, but the server looked at the limit before it looked for the end.
    `after_divergence`: later turns whose input already differed. `unmatched`: an answer that is missing or failed on
    one side, or has no counterpart.
    """

    comparison: Comparison
    server: str
    workload: str  # or 'all'
    compared: int
    identical: int
    tie: int
    overrun: int
    bug: int
    unscored: int
    after_divergence: int
    unmatched: int
    tokens: int  # compared up to and including the first difference
    largest_gap: float | None  # of ties and bugs
    threshold: float  # nats; a gap below it is a tie


class LosslessResult(Record):
    """`arm`: every server against the baseline. Controls (A/A), which give the rate of differences to expect: `repeats`
    compares any server's later repeats with its first, `concurrency` the baseline's same repeat with that at the
    lowest concurrency. The baseline's scores judge all of them."""

    schema_version: int = SCHEMA
    baseline: str
    agreements: list[Agreement]
    divergences: list[Divergence]
    missing: list[str]  # cells that the plan asks for and that could not be compared, '<server>/<workload>/c<N>'
