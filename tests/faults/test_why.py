"""Why a cell would run now, or not, in one line each; and a folder that cannot be written."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from small_bench import PLAN, Bench

from ddtree.plan.layout import Layout
from ddtree.plan.load import load
from ddtree.plan.schema import Plan
from ddtree.plan.why import why
from ddtree.plan.workflow import write_specs

pytestmark = pytest.mark.slow


def plan_of(bench: Bench, budget: int = 7) -> Plan:
    content: Any = copy.deepcopy(PLAN)
    content["servers"]["tree"]["budget"] = budget
    bench.configure(content)
    return load([bench.folder / "config/ddtree.yaml"], root=bench.folder)


def lines(text: str) -> dict[str, str]:
    """'<server> <cell>' -> '<run or keep> <reason>'."""
    words = [line.split(maxsplit=3) for line in text.splitlines()]
    return {f"{server} {cell}": f"{verdict} {reason}" for verdict, server, cell, reason in words}


def test_every_cell_has_its_reason(bench: Bench) -> None:
    layout = Layout("small", bench.folder)
    bench.run_session("tree")
    path = layout.cell("tree", "other/c1")
    path.write_bytes(path.read_bytes()[:100])
    found = lines(why(plan_of(bench), layout))
    assert len(found) == 6
    assert found["ar short/c1"] == "run not measured yet"
    assert found["tree short/c1"] == f"keep measured: {layout.cell('tree', 'short/c1')}"
    assert found["tree other/c1"].startswith(f"run refused: {path}: not a whole JSON file")

    changed = lines(why(plan_of(bench, budget=5), layout))
    assert changed["tree short/c2"] == "run changed since it was measured: server.budget 7 -> 5"

    layout.prompts("tiny", "short").unlink()
    unbuilt = lines(why(plan_of(bench), layout))
    before = f"run measured before: {layout.cell('tree', 'short/c1')}; to be built first: prompts short"
    assert unbuilt["tree short/c1"] == before
    assert unbuilt["tree other/c1"].startswith("run refused")


def test_a_failed_cell_runs_again_unless_its_failure_is_taken_as_the_result(bench: Bench) -> None:
    bench.fault("start.tree", "always torch.OutOfMemoryError: CUDA out of memory.")
    bench.run_session("tree")
    plan, layout = plan_of(bench), Layout("small", bench.folder)
    reason = "failed before: out_of_memory: torch.OutOfMemoryError: CUDA out of memory."
    assert lines(why(plan, layout))["tree short/c1"].startswith(f"run {reason}")
    assert lines(why(plan, layout, retry_failed=False))["tree short/c1"].startswith(f"keep {reason}")


def test_a_folder_that_cannot_be_written_is_one_line_before_anything_starts(bench: Bench) -> None:
    plan, layout = plan_of(bench, budget=5), Layout("small", bench.folder)
    spec = layout.cell_spec("tree", "short/c1")
    spec.unlink()
    spec.mkdir()
    with pytest.raises(SystemExit, match=r"spec/cells/tree/short/c1\.json: Is a directory"):
        write_specs(plan, layout, retry_failed=True)
