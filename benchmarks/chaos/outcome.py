"""What a run found out, without what no two runs share: times, and what follows from them."""

from __future__ import annotations

import csv
from collections import Counter

from small_bench import Bench

from ddtree.cells import read_cell

Row = tuple[str, ...]
# Table -> its columns that do not depend on time. Failures of starts and doubts about times are a run's own.
SAME = {
    "acceptance": "server workload concurrency tau n requests nodes_per_step",
    "arms": "server method budget status cells_measured cells_planned category detail",
    "cells": "server method workload role concurrency repeat metric unit n failures",
    "depth": "server workload concurrency kind depth share n",
    "divergences": "comparison server workload concurrency repeat conversation turn position verdict",
    "lossless": "comparison server workload compared identical tie bug unscored unmatched tokens",
    "requests": "server workload concurrency repeat conversation turn category input_tokens output_tokens "
    "finish_reason failure cached_tokens verify_steps verified_nodes",
    "settings": "server key requested effective",
    "speedups": "server against reference workload concurrency category metric n pairs",
    "throughput": "server method workload role concurrency n",
    "workloads": "workload source prompts turns repeats concurrency input_tokens_mean output_tokens_mean n",
}


def of(bench: Bench) -> dict[str, Counter[Row]]:
    """The comparable rows of every table, and every answer, of a finished run."""
    results = bench.folder / "results/small"
    found = {}
    for table, columns in SAME.items():
        with (results / "tables" / f"{table}.csv").open(newline="") as file:
            found[table] = Counter(tuple(row[column] for column in columns.split()) for row in csv.DictReader(file))
    answers: Counter[Row] = Counter()
    for path in (results / "cells").rglob("*.json"):
        cell = read_cell(path)
        for run in cell.runs:
            for r in run.requests:
                where = (
                    cell.server,
                    cell.workload,
                    f"{cell.concurrency}",
                    f"{run.repeat}",
                    r.conversation,
                    f"{r.turn}",
                )
                answers[(*where, f"{r.output_ids}", r.text, f"{r.speculation}", cell.key)] += 1
    return found | {"answers": answers}


def compare(expected: dict[str, Counter[Row]], found: dict[str, Counter[Row]]) -> None:
    """Raises AssertionError with the first rows that differ."""
    for table, rows in expected.items():
        lost, new = list((rows - found[table]).elements()), list((found[table] - rows).elements())
        assert not lost + new, f"{table}: {len(lost)} rows lost, e.g. {lost[:2]}; {len(new)} new, e.g. {new[:2]}"
