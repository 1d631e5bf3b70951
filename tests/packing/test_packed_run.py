"""Snakemake packs real sessions of a fake engine on eight pretended GPUs."""

from __future__ import annotations

import copy
from itertools import combinations
from pathlib import Path

import pytest
import small_bench

from ddtree.bench.records import Cell
from ddtree.cells import read_cell

pytestmark = pytest.mark.slow
WIDTHS = {"ar": 1, "one-b": 1, "four-a": 4, "four-b": 4, "eight": 8}


def span(cells: list[Cell]) -> tuple[float, float]:
    """Wall-clock seconds from the first cell's begin to the last one's end."""
    return min(cell.started_unix for cell in cells), max(cell.started_unix + cell.seconds for cell in cells)


def test_the_widest_goes_first_and_no_gpu_serves_two_servers_at_once(tmp_path: Path) -> None:
    bench = small_bench.make(tmp_path)
    plan = copy.deepcopy(small_bench.PLAN)
    plan["server_defaults"] = {"model": "tiny", "device": "cuda", "stop_grace_s": 0.5, "method": "autoregressive"}
    plan["servers"] = {name: {"gpus": gpus} for name, gpus in WIDTHS.items()}
    plan["workloads"] = {"short": {"source": "held_out", "prompts": 2, "max_new_tokens": 8}}
    plan["concurrency"] = [1]
    bench.configure(plan)
    eight = ",".join(map(str, range(8)))
    targets = [f"results/small/sessions/{name}.json" for name in WIDTHS]
    process = bench.start("--cores", "8", *targets, CUDA_VISIBLE_DEVICES=eight, DDTREE_TEST_TOKEN_S="0.1")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    cells = {name: read_cell(bench.folder / f"results/small/cells/{name}/short/c1.json") for name in WIDTHS}
    gpus = {name: set(str(cell.provenance["server_gpus"]).split(",")) for name, cell in cells.items()}
    assert {name: len(held) for name, held in gpus.items()} == WIDTHS
    begin, end = ({name: span([cell])[i] for name, cell in cells.items()} for i in (0, 1))
    assert min(begin, key=lambda name: begin[name]) == "eight"
    together = [{a, b} for a, b in combinations(WIDTHS, 2) if max(begin[a], begin[b]) < min(end[a], end[b])]
    for a, b in together:
        assert not gpus[a] & gpus[b]
    assert {"four-a", "four-b"} in together or {"ar", "one-b"} in together
    seen = {name: set(_neighbours(cell)) for name, cell in cells.items()}
    assert seen["eight"] == set()
    assert any(seen.values())
    assert set().union(*seen.values()) <= {f"small/{name}" for name in WIDTHS}


def _neighbours(cell: Cell) -> list[str]:
    before, after = cell.provenance["before"], cell.provenance["after"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    return [*before["neighbours"], *after["neighbours"]]
