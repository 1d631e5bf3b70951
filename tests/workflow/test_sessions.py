"""A session with a server that fails: retries, reasons, and no result that is not one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable

import pytest
from small_bench import CELLS, MANIFESTS, Bench, wait_for

from ddtree.cells import read_cell

pytestmark = pytest.mark.slow
Copy = Callable[[Bench], Bench]


@pytest.fixture(scope="session")
def requested(prepared: Bench) -> Bench:
    """The session's spec files are written, so that sessions run without Snakemake."""
    assert (prepared.folder / "results/small/spec/sessions/tree.json").exists()
    return prepared


def test_a_start_that_fails_twice_is_tried_again_with_the_cause(requested: Bench, copy_of: Copy) -> None:
    bench = copy_of(requested)
    bench.fault("start.tree", "always Exception: a passing trouble")
    process = bench.start_session("tree")
    wait_for(lambda: len(list(bench.folder.glob("logs/servers/small/tree-*.log"))) == 2, "a second start")
    (bench.folder / "faults/start.tree").unlink()
    output, _ = process.communicate(timeout=60)
    manifest = bench.manifest("tree")
    assert {status.status for status in manifest.cells.values()} == {"ok"}
    assert [start.ready for start in manifest.starts][-1] is True
    assert all(start.reason and "a passing trouble" in start.reason.detail for start in manifest.starts[:-1])
    assert len(manifest.starts) >= 2
    assert "start failed (1 of 3)" in output


def test_running_out_of_memory_is_final_and_every_cell_has_the_reason(requested: Bench, copy_of: Copy) -> None:
    bench = copy_of(requested)
    bench.fault("start.tree", "always torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    manifest = bench.run_session("tree")
    assert len(manifest.starts) == 1
    assert len(manifest.cells) == 3
    for status in manifest.cells.values():
        assert status.status == "failed"
        assert status.reason is not None
        assert status.reason.category == "out_of_memory"


def test_other_failing_starts_are_limited(requested: Bench, copy_of: Copy) -> None:
    bench = copy_of(requested)
    bench.fault("start.tree", "always RuntimeError: broken")
    manifest = bench.run_session("tree")
    assert [start.ready for start in manifest.starts] == [False] * 3
    assert {status.status for status in manifest.cells.values()} == {"failed"}


def test_a_server_that_dies_in_a_cell_is_started_again_and_the_cell_repeated(requested: Bench, copy_of: Copy) -> None:
    bench = copy_of(requested)
    bench.fault("request.tree.5", "die")
    manifest = bench.run_session("tree")
    assert {status.status for status in manifest.cells.values()} == {"ok"}
    assert [start.ready for start in manifest.starts] == [True, True]
    attempts = [json.loads(content)["attempt"] for content in bench.cells().values()]
    assert sorted(attempts) == [1, 1, 2]
    assert not bench.processes()


def test_answers_of_the_baseline_are_scored_and_cells_tell_their_origin(requested: Bench, copy_of: Copy) -> None:
    bench = copy_of(requested)
    bench.run_session("ar")
    cells = {name: read_cell(bench.folder / f"results/small/cells/{name}.json") for name in bench.cells()}
    assert {name for name, cell in cells.items() if cell.audits} == {"ar/short/c1", "ar/short/c2"}
    cell = cells["ar/short/c1"]
    assert cell.effective["method"] == "autoregressive"
    assert {"git", "plan_sha256", "lock_sha256", "driver", "engine", "machine", "gpus", "before", "after"} <= set(
        cell.provenance
    )
    assert (bench.folder / str(cell.provenance["server_log"])).exists()


def test_leftovers_of_an_interrupted_write_are_removed_and_half_a_file_is_no_result(
    requested: Bench, copy_of: Copy
) -> None:
    bench = copy_of(requested)
    bench.run_session("tree")
    whole = bench.cells()
    path = bench.folder / "results/small/cells/tree/short/c1.json"
    path.write_bytes(path.read_bytes()[:500])
    leftover = path.with_name(".c2.json.123.tmp")
    leftover.write_text("{")
    bench.run_session("tree")
    assert not leftover.exists()
    read_cell(path)
    assert {name for name, content in bench.cells().items() if whole[name] == content} == set(whole) - {"tree/short/c1"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_session_takes_its_server_along(requested: Bench, copy_of: Copy, number: signal.Signals) -> None:
    bench = copy_of(requested)
    process = bench.start_session("tree", DDTREE_TEST_TOKEN_S="0.05")
    wait_for(lambda: bench.cells(), "a cell")
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGTERM else -number)
    wait_for(lambda: not bench.processes(), "the end of every process", limit_s=15)
    assert not (bench.folder / "results/small/sessions/tree.json").exists()


def test_a_session_ends_with_its_owner(requested: Bench, copy_of: Copy) -> None:
    bench = copy_of(requested)
    owner = subprocess.Popen(["sleep", "100"])
    process = bench.start_session("tree", owner.pid, DDTREE_TEST_TOKEN_S="0.05")
    wait_for(lambda: bench.cells(), "a cell")
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "finished cells are kept" in output
    assert not bench.processes()


def test_a_failed_server_is_a_row_and_a_status_and_the_next_run_tries_it_again(measured: Bench, copy_of: Copy) -> None:
    bench = copy_of(measured)
    kept = {name: content for name, content in bench.cells().items() if name.startswith("ar/")}
    for path in (bench.folder / "results/small/cells/tree").rglob("*.json"):
        path.unlink()
    bench.fault("start.tree", "always torch.OutOfMemoryError: CUDA out of memory.")
    status, output = bench.run("results/small/tables")
    assert status == 1, output
    assert "tree: 3 of 3 cells failed, e.g. out_of_memory" in output
    assert bench.statuses("tree") == {"failed"}
    assert "out_of_memory" in (bench.folder / "results/small/tables/failures.csv").read_text()
    status, output = bench.run(*MANIFESTS, "--config", "retry_failed=0")
    assert status == 0, output
    assert "Nothing to be done" in output
    (bench.folder / "faults/start.tree").unlink()
    status, output = bench.run("why")
    assert status == 0, output
    assert "run   tree  short/c1  failed before: out_of_memory: torch.OutOfMemoryError" in output
    assert "keep  ar    short/c1  measured: results/small/cells/ar/short/c1.json" in output
    status, output = bench.run(*MANIFESTS)
    assert status == 0, output
    assert bench.statuses("tree") == {"ok"}
    assert set(bench.cells()) == CELLS
    assert {name: content for name, content in bench.cells().items() if name in kept} == kept
