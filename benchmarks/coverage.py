"""How often the intervals hold the truth, on simulated prompts of known effect. No server, no model.

    python benchmarks/coverage.py [--runs 2000]

Each row is one way of making data: so many prompts, lengths and noise of some shape, repeats of one conversation that
go together. Printed: the share of 95 % intervals that cover the true speed-up, with its own 95 % Wilson interval, the
share that calls a true speed-up of exactly 1 faster or slower (2.5 % each would be right), and the mean half-width.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ddtree.bench.stats import Interval, outcome, paired_ratio
from ddtree.quality.results import wilson

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Floats]  # factors with mean 1
PROMPTS = (5, 8, 12, 20, 50, 200)
REPEATS = 2


def lognormal(spread: float) -> Noise:
    return lambda rng, n: rng.lognormal(-(spread**2) / 2, spread, n)


def outliers(rng: np.random.Generator, n: int) -> Floats:
    """5 % noise; one answer in 25 takes three times as long."""
    slow = np.where(rng.random(n) < 0.04, 3.0, 1.0) / 1.08
    return slow * lognormal(0.05)(rng, n)


SHAPES: dict[str, Noise] = {"noise 5 %": lognormal(0.05), "noise 30 %": lognormal(0.3), "outliers": outliers}


def simulate(rng: np.random.Generator, n: int, noise: Noise, speedup: float, seed: int) -> Interval:
    """`n` conversations of lognormal length, each with a gain of its own and answered twice by both sides."""
    length, gain = rng.lognormal(0, 0.6, n), lognormal(0.2)(rng, n)
    reference = np.concatenate([speedup * length * gain * noise(rng, n) for _ in range(REPEATS)])
    arm = np.concatenate([length * noise(rng, n) for _ in range(REPEATS)])
    return paired_ratio(reference, arm, groups=list(range(n)) * REPEATS, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="simulations per row (default 2000)")
    runs = parser.parse_args().runs
    print(f"{'shape':<12}{'prompts':>8}{'covered':>9}{'interval':>18}{'faster':>9}{'slower':>9}{'half-width':>12}")
    for name, noise in SHAPES.items():
        for n in PROMPTS:
            rng = np.random.default_rng(n)
            found = [simulate(rng, n, noise, 2.0, seed) for seed in range(runs)]
            null = [outcome(simulate(rng, n, noise, 1.0, seed)) for seed in range(runs)]
            covered = wilson(sum(i.low <= 2.0 <= i.high for i in found), runs)
            false = [100 * null.count(side) / runs for side in ("faster", "slower")]
            width = 100 * float(np.mean([i.half_width for i in found]))
            bounds = f"{100 * covered.low:.1f} to {100 * covered.high:.1f} %"
            print(
                f"{name:<12}{n:>8}{100 * (covered.value or 0):>7.1f} %{bounds:>18}"
                f"{false[0]:>7.1f} %{false[1]:>7.1f} %{width:>10.1f} %"
            )


if __name__ == "__main__":
    main()
