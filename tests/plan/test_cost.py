"""The estimate grows with the work, learns from results, and its overview can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plans import changed, checkpoints, write

from ddtree.plan.cost import estimate, stated
from ddtree.plan.keys import CellId, all_cells
from ddtree.plan.layout import Layout
from ddtree.plan.load import load
from ddtree.plan.show import minutes, show


def test_more_tokens_prompts_or_repeats_cost_more_and_concurrency_less(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    cell = CellId("ar", "short", 1)
    base = stated(load([write(tmp_path, changed())], root=tmp_path), cell)
    for name, value in (
        ("max_new_tokens", 128),
        ("prompts", 16),
        ("repeats", 2),
        ("turns", 2),
        ("prompt_tokens", 2000),
    ):
        plan = load([write(tmp_path, changed((f"workloads/short/{name}", value)))], root=tmp_path)
        assert stated(plan, cell) > base, name
        assert stated(plan, CellId("ar", "short", 4)) < stated(plan, cell), name


def test_measured_cells_stand_for_themselves_and_scale_the_others(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    plan, layout = load([write(tmp_path, changed())], root=tmp_path), Layout("small", tmp_path)
    before = estimate(plan, layout)
    assert before.measured == 0
    cell = CellId("ar", "short", 1)
    path = layout.cell(cell.server, cell.name)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"seconds": 3 * before.cells[cell]}))
    after = estimate(plan, layout)
    assert after.measured == 1
    assert {c: after.cells[c] for c in all_cells(plan)} == pytest.approx({c: 3 * s for c, s in before.cells.items()})


def test_the_overview_names_servers_cells_and_what_is_built_first(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    plan = load([write(tmp_path, changed())], root=tmp_path)
    text = show(plan, Layout("small", tmp_path))
    assert "To build first: environment embedded (.envs/embedded), model tiny (models/tiny), 2 prompt sets" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("tree "))
    assert row[:6] == ["tree", "ddtree", "4", "0", "4", "0"]
    assert "12 cells, 0 done, 12 to do, 0 failed" in text
    assert "3 server starts and about" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (60, "1.0 min"), (3599, "60.0 min"), (7500, "2 h 05 min")]
)
def test_durations_read_naturally(seconds: float, text: str) -> None:
    assert minutes(seconds) == text
