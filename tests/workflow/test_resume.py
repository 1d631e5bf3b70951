"""Whatever happens to a run, finished cells stay as they are and the next run measures the rest."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest
from small_bench import CELLS, MANIFESTS, PLAN, Bench, kill, wait_for

pytestmark = pytest.mark.slow
Copy = Callable[[Bench], Bench]
SLOW = {"DDTREE_TEST_TOKEN_S": "0.2"}


def test_a_second_run_has_nothing_to_do_whatever_the_comments_say(measured: Bench, copy_of: Copy) -> None:
    bench = copy_of(measured)
    before = bench.cells()
    assert set(before) == CELLS
    bench.configure({**PLAN, "title": "Other words"})
    path = bench.folder / "config/ddtree.yaml"
    path.write_text("# A comment.\n" + path.read_text())
    script = bench.folder / "scripts/session.py"
    script.write_text(script.read_text() + "# A comment.\n")
    status, output = bench.run(*MANIFESTS)
    assert status == 0
    assert "Nothing to be done" in output
    assert bench.cells() == before


def test_a_second_run_beside_it_is_refused_and_a_killed_run_leaves_nothing_behind_and_is_resumed(
    prepared: Bench, copy_of: Copy
) -> None:
    bench = copy_of(prepared)
    run = bench.start(*MANIFESTS, **SLOW)
    wait_for(lambda: len(bench.cells()) >= 2, "two cells")
    status, output = bench.run(*MANIFESTS)
    assert status != 0
    assert output.splitlines()[-1].startswith("run/snakemake.lock: another run is working in this folder")
    kill(run)
    finished = bench.cells()
    wait_for(lambda: not bench.processes(), "the end of every process", limit_s=15)
    assert not bench.leases()
    assert len(finished) < len(CELLS)
    assert not list(bench.folder.glob("results/small/cells/**/*.tmp"))

    status, output = bench.run(*MANIFESTS)
    assert status == 0, output
    after = bench.cells()
    assert set(after) == CELLS
    assert {name: after[name] for name in finished} == finished
    assert bench.statuses("ar") == bench.statuses("tree") == {"ok"}


def test_ctrl_c_stops_the_server_and_keeps_finished_cells(prepared: Bench, copy_of: Copy) -> None:
    bench = copy_of(prepared)
    run = bench.start(*MANIFESTS, start_new_session=True, **SLOW)
    wait_for(lambda: bench.cells(), "a cell")
    os.killpg(run.pid, signal.SIGINT)
    output, _ = run.communicate(timeout=30)
    finished = bench.cells()
    assert run.returncode != 0
    assert "finished cells are kept" in output
    wait_for(lambda: not bench.processes(), "the end of every process", limit_s=15)
    assert bench.cells() == finished
    assert 0 < len(finished) < len(CELLS)


def test_a_deleted_and_an_edited_cell_are_measured_again_and_no_other(measured: Bench, copy_of: Copy) -> None:
    bench = copy_of(measured)
    cells = bench.folder / "results/small/cells"
    before = bench.cells()
    (cells / "tree/short/c1.json").unlink()
    edited = cells / "tree/other/c1.json"
    cell = json.loads(edited.read_text())
    cell["seconds"] *= 0.5
    edited.write_text(json.dumps(cell))

    status, output = bench.run(*MANIFESTS)
    assert status == 0, output
    after = bench.cells()
    assert {name for name in CELLS if after[name] == before[name]} == CELLS - {"tree/short/c1", "tree/other/c1"}
    assert "edited after it was measured" in (bench.folder / "logs/sessions/small/tree.log").read_text()
    assert bench.statuses("tree") == {"ok"}


def test_one_cell_can_be_asked_for_alone(prepared: Bench, copy_of: Copy) -> None:
    bench = copy_of(prepared)
    status, output = bench.run("results/small/cells/tree/short/c2.json")
    assert status == 0, output
    alone = bench.cells()
    assert set(alone) == {"tree/short/c2"}
    bench.run_session("tree")
    assert set(bench.cells()) == {name for name in CELLS if name.startswith("tree/")}
    assert bench.cells()["tree/short/c2"] == alone["tree/short/c2"]
