"""Kill a run at random points until it has survived enough of them: `python benchmarks/chaos/run.py --help`.

A plan of 60 short cells is run once undisturbed and then again and again under fire: SIGKILL, SIGTERM and Ctrl-C to
Snakemake, sessions (which contain the load client), guards, servers and other jobs, and a results folder whose disk is
full for a moment. A run that ended is started again until it is finished. After every strike and at the end of every
round it is checked that finished cells are untouched, that no process, lease or port is left, and that the tables tell
what those of the undisturbed run tell, times apart. Prints the number of strikes by kind.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("benchmarks", "tests", "tests/workflow")]

from chaos import outcome, storm  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strikes", type=int, default=200, help="how many there must be in all")
    parser.add_argument("--per-round", type=int, default=40, help="strikes before a plan may finish in peace")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no further round after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--engine", choices=["real", "fake"], default="real", help="fake: without a model, starts faster"
    )
    args = parser.parse_args()
    began, rng, total = time.monotonic(), random.Random(args.seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="ddtree-chaos-") as folder:
        prepared = storm.prepare(Path(folder) / "prepared", args.engine)
        calm = storm.copy(prepared, Path(folder) / "undisturbed")
        storm.in_peace(calm)
        expected = outcome.of(calm)
        print(f"undisturbed run: {len(calm.cells())} cells in {time.monotonic() - began:.0f} s", flush=True)
        rounds = 0
        while total.total() < args.strikes and time.monotonic() - began < args.seconds:
            bench = storm.copy(prepared, Path(folder) / f"round-{rounds}")
            with storm.small_disk(bench) as disk:
                done = storm.survive(bench, rng, min(args.per_round, args.strikes - total.total()), disk)
                outcome.compare(expected, outcome.of(bench))
                cells = len(bench.cells())
            total, rounds = total + done.strikes, rounds + 1
            summary = f"{done.strikes.total()} strikes, {done.runs} runs, {cells} cells as they should be"
            print(f"round {rounds}: {summary} ({time.monotonic() - began:.0f} s)", flush=True)
    for kind, count in sorted(total.items()):
        print(f"{count:5d}  {kind}")
    print(f"{total.total():5d}  strikes survived in {rounds} rounds")
    return 0 if total.total() >= args.strikes else 1


if __name__ == "__main__":
    sys.exit(main())
