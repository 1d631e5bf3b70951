"""Intervals by bootstrap, and what they say in words. NaN marks a bound or value that the data cannot give.

The percentile bootstrap is too narrow for few values: its interval ignores that the spread itself is estimated. The
quantiles are therefore widened as in Hesterberg, "What Teachers Should Know About the Bootstrap" (The American
Statistician 69, 2015, section 3.3): alpha' = Phi(-sqrt(n / (n - 1)) t(alpha / 2, n - 1)).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 2000
LEVEL = 0.95
MIN_PAIRS = 5  # below that even a widened interval says little
WANTED_HALF_WIDTH = 0.05  # relative: an interval of value +- 5 % counts as settled
_BLOCK = 2_000_000  # resampled values held at once
_FEW = 512  # up to so many values the draws are kept: 8 MB
_NORMAL = NormalDist()


Outcome = Literal["too few", "faster", "slower", "same", "open"]


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Relative to the value."""
        return (self.high - self.low) / 2 / abs(self.value) if self.value else math.nan


def mean_interval(values: ArrayLike, *, level: float = LEVEL, seed: int = 0) -> Interval:
    """Mean of independent values with its bootstrap interval."""
    sample = np.asarray(values, dtype=float)
    return _interval(sample, np.ones_like(sample), level, seed)


def paired_ratio(
    num: ArrayLike,
    den: ArrayLike,
    num_weights: ArrayLike | None = None,
    den_weights: ArrayLike | None = None,
    groups: Sequence[Hashable] | None = None,
    *,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """Ratio of sums, sum(num) / sum(den), over pairs; resampled by pair.

    With weights each sum is divided by the sum of its weights: seconds weighted by tokens give a ratio of seconds per
    token when the two sides emitted different numbers of tokens. `groups` names what belongs together (the turns and
    repeats of one conversation): groups are then resampled instead, and `n` counts them. ValueError for unequal lengths
    or a denominator that is not positive.
    """
    columns = [np.asarray(column, dtype=float) for column in (num, den, *_weights(num, den, num_weights, den_weights))]
    if len({len(column) for column in columns} | ({len(groups)} if groups is not None else set())) != 1:
        raise ValueError("paired_ratio: num, den, weights and groups must have one length")
    if groups is not None:
        columns = _by_group(columns, groups)
    a, b, wa, wb = columns
    if len(b) and (b.sum() <= 0 or wa.sum() <= 0 or wb.sum() <= 0):
        raise ValueError("paired_ratio: the sums of den and of the weights must be positive")
    if num_weights is None and den_weights is None:
        return _interval(a, b, level, seed)
    return _interval(a, b, level, seed, wa, wb)


def noise_floor(ratios: Sequence[float]) -> float:
    """The largest relative difference between two measurements of the same thing (A/A ratios, 1 = equal): a difference
    below it is not told from nothing. Symmetric: 0.8 and 1.25 are the same distance from 1."""
    return math.expm1(max((abs(math.log(ratio)) for ratio in ratios), default=math.nan))


def verdict(interval: Interval, wanted: float = WANTED_HALF_WIDTH) -> str:
    """`stable`, `too few`, or how many more prompts would bring the interval to value +- `wanted`: its width shrinks
    with the square root of n."""
    if interval.n < MIN_PAIRS or math.isnan(interval.half_width):
        return "too few"
    if interval.half_width <= wanted:
        return "stable"
    more = max(1, round(interval.n * (interval.half_width / wanted) ** 2) - interval.n)
    return f"wide: about {more} more prompts would settle it"


def outcome(speedup: Interval, floor: float = 0.0) -> Outcome:
    """What a speed-up's interval says about the noise band 1 / (1 + floor) to 1 + floor, in which nothing is told from
    1: the interval lies above it, below it, inside it, or across one of its edges."""
    if speedup.n < MIN_PAIRS or math.isnan(speedup.half_width):
        return "too few"
    if speedup.low > 1 + floor:
        return "faster"
    if speedup.high < 1 / (1 + floor):
        return "slower"
    return "same" if 1 / (1 + floor) <= speedup.low and speedup.high <= 1 + floor else "open"


def prompts_to_settle(speedup: Interval, floor: float = 0.0) -> int | None:
    """How many more prompts would take an `open` comparison to one side of the noise band's edges, if the value stays:
    each bound nears it, in logarithms, with the square root of n. 0 when settled; None when the data cannot tell, as
    with too few pairs or a value on an edge."""
    state = outcome(speedup, floor)
    if state != "open":
        return None if state == "too few" else 0
    edge, value = math.log1p(floor), math.log(speedup.value)
    below, above = value - math.log(speedup.low), math.log(speedup.high) - value
    if abs(value) > edge:
        reaches = [(below if value > 0 else above, abs(value) - edge)]
    else:
        reaches = [(below, edge + value), (above, edge - value)]
    if any(room <= 0 for _, room in reaches):
        return None
    return max(1, math.ceil(speedup.n * max(reach / room for reach, room in reaches) ** 2) - speedup.n)


def student_t(p: float, df: int) -> float:
    """Quantile of Student's t: exact for 1 and 2 degrees of freedom, above them Abramowitz and Stegun 26.7.5, less than
    1 % off at the 95 % level."""
    if df == 1:
        return math.tan(math.pi * (p - 0.5))
    if df == 2:
        return (2 * p - 1) / math.sqrt(2 * p * (1 - p))
    z = _NORMAL.inv_cdf(p)
    return (
        z
        + (z**3 + z) / (4 * df)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * df**4)
    )


def _weights(num: ArrayLike, den: ArrayLike, wa: ArrayLike | None, wb: ArrayLike | None) -> tuple[ArrayLike, ArrayLike]:
    return (np.ones(np.shape(num)) if wa is None else wa, np.ones(np.shape(den)) if wb is None else wb)


def _by_group(columns: list[NDArray[np.float64]], groups: Sequence[Hashable]) -> list[NDArray[np.float64]]:
    number = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    index = np.array([number[name] for name in groups], dtype=int)
    return [np.asarray(np.bincount(index, column, len(number)), dtype=float) for column in columns]


def _interval(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    level: float,
    seed: int,
    wa: NDArray[np.float64] | None = None,
    wb: NDArray[np.float64] | None = None,
) -> Interval:
    """Bootstrap of (sum a / sum wa) / (sum b / sum wb) over the common index."""
    n = len(a)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)

    plain = bool((b == 1).all())  # a mean: every resample has as many values

    def statistic(times: NDArray[np.float64]) -> NDArray[np.float64]:
        ratio = times @ a / (n if plain else times @ b)
        return ratio if wa is None or wb is None else ratio * (times @ wb) / (times @ wa)

    value = float(statistic(np.ones(n)))
    if n == 1:
        return Interval(value, math.nan, math.nan, 1)
    draws = _few_draws(n, seed) if n <= _FEW else _draws(n, seed)
    drawn = [statistic(times) for times in draws]
    tail = _NORMAL.cdf(-math.sqrt(n / (n - 1)) * student_t((1 + level) / 2, n - 1))
    low, high = np.quantile(np.concatenate(drawn), (tail, 1 - tail))
    return Interval(value, float(low), float(high), n)


def _draws(n: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """The bootstrap's resamples in blocks of rows: how often each of n items was drawn."""
    rng, rows = np.random.default_rng(seed), max(1, _BLOCK // n)
    for begin in range(0, RESAMPLES, rows):
        count = min(rows, RESAMPLES - begin)
        cells = rng.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
        yield np.bincount(cells.ravel(), minlength=count * n).reshape(count, n).astype(float)


@lru_cache(maxsize=8)
def _few_draws(n: int, seed: int) -> tuple[NDArray[np.float64], ...]:
    """Nearly all intervals of a report are over equally many prompts: they share their draws."""
    return tuple(_draws(n, seed))
