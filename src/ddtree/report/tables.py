"""Every derived number, as tidy tables: Parquet for programs, CSV for people. The report reads nothing else.

Each row has its number (`row`, the first column) and the cell file or files that it comes from (`path`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ddtree.plan.schema import Plan
from ddtree.report import accepted, frames, ratios, results, status, verdicts

TABLES = (
    "requests", "cells", "throughput", "speedups", "best", "noise", "acceptance", "depth", "arms", "settings",
    "workloads", "failures", "coding", "lossless", "divergences", "provenance",
)  # fmt: skip


def write(
    plan: Plan,
    manifests: Sequence[Path],
    prompts: Sequence[Path],
    coding: Sequence[Path],
    lossless: Path | None,
    out: Path,
) -> None:
    """Derives all tables and writes out/<table>.parquet and .csv. Raises results.BadResult, one line, on a bad file."""
    found = results.load(plan, manifests, prompts, coding, lossless)
    requests = frames.requests(found)
    pairs, noise = ratios.paired(requests, plan), ratios.noise(requests, plan)
    floors = ratios.floors(noise)
    frame = {
        "requests": requests,
        "cells": frames.cells(found),
        "throughput": frames.throughput(found),
        "speedups": ratios.speedups(pairs, plan, floors),
        "best": ratios.best(pairs, plan, floors),
        "noise": noise,
        "acceptance": accepted.acceptance(found),
        "depth": accepted.depth(found),
        "arms": status.arms(found),
        "settings": status.settings(found),
        "workloads": status.workloads(found),
        "failures": status.failures(found),
        "coding": verdicts.coding(found),
        "lossless": verdicts.lossless(found),
        "divergences": verdicts.divergences(found),
        "provenance": status.provenance(found),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        numbered = frame[name].reset_index(drop=True)
        numbered.insert(0, "row", range(len(numbered)))
        numbered.to_parquet(out / f"{name}.parquet", index=False)
        numbered.to_csv(out / f"{name}.csv", index=False)


def read(folder: Path) -> dict[str, pd.DataFrame]:
    """All tables, and `pooled`: the rows of `cells` that cover all repeats."""
    found = {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLES}
    return {**found, "pooled": found["cells"][found["cells"]["repeat"].isna()]}
