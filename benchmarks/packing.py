"""How well a plan's sessions share the GPUs of one machine: makespan against a lower bound.

    python benchmarks/packing.py [PLAN.yaml ...] [--gpus 8] [--rounds 200] [--error 0.3]

The event simulation is the rule by which Snakemake starts sessions (ddtree.plan.packing). The order is chosen by the
plan's estimates; in each round the sessions then take other times, up to `--error` shorter or longer.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path

from ddtree.plan import packing
from ddtree.plan.cost import estimate
from ddtree.plan.layout import Layout
from ddtree.plan.load import load
from ddtree.plan.show import minutes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="*", type=Path, default=[Path("config/ct200.yaml")])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--error", type=float, default=0.3)
    args = parser.parse_args()
    plan = load(args.plans)
    with tempfile.TemporaryDirectory() as empty:
        guess = estimate(plan, Layout(plan.plan, Path(empty)))
    seconds = dict(guess.starts)
    for cell, expected in guess.cells.items():
        seconds[cell.server] += expected
    jobs = packing.jobs(plan, seconds, args.gpus)
    ordered = packing.order(jobs, args.gpus)
    for job, start in zip(ordered, packing.starts(ordered, args.gpus), strict=True):
        print(f"{job.server:<24} {job.gpus} GPUs  from {minutes(start):>10}  for {minutes(job.seconds):>10}")
    total, bound = packing.makespan(ordered, args.gpus), packing.lower_bound(jobs, args.gpus)
    area = sum(job.gpus * job.seconds for job in jobs) / args.gpus
    print(f"makespan {minutes(total)}: {total / bound:.3f} of the lower bound, {total / area:.3f} of full GPUs")
    print(f"one after the other: {minutes(sum(job.seconds for job in jobs))}")
    ratios = []
    for seed in range(args.rounds):
        chance = random.Random(seed)
        real = [replace(job, seconds=job.seconds * chance.uniform(1 - args.error, 1 + args.error)) for job in ordered]
        ratios.append(packing.makespan(real, args.gpus) / packing.lower_bound(real, args.gpus))
    mean, worst = sum(ratios) / len(ratios), max(ratios)
    print(f"{args.rounds} rounds with times off by up to {args.error:.0%}: mean {mean:.3f}, worst {worst:.3f}")


if __name__ == "__main__":
    main()
