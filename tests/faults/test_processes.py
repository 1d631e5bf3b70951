"""Killed guards and a clock that jumps."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from small_bench import Bench, wait_for

from ddtree.cells import read_cell

pytestmark = pytest.mark.slow


def guards(bench: Bench) -> list[int]:
    found = []
    for pid in bench.processes():
        try:
            if any(word.endswith("guard.py") for word in psutil.Process(pid).cmdline()):
                found.append(pid)
        except psutil.Error:
            continue
    return found


def test_a_killed_guard_costs_the_running_cell_and_no_other(bench: Bench) -> None:
    process = bench.start_session("tree", DDTREE_TEST_TOKEN_S="0.05")
    wait_for(bench.cells, "a cell")
    finished = bench.cells()
    (guard,) = guards(bench)
    os.kill(guard, signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    manifest = bench.manifest("tree")
    assert [start.ready for start in manifest.starts] == [True, True]
    assert bench.statuses("tree") == {"ok"}
    assert {name: bench.cells()[name] for name in finished} == finished
    assert not bench.processes()
    assert not bench.leases()


JUMPING = """
import time
_true, _calls = time.time, 0
def _time():
    global _calls
    _calls += 1
    return _true() + 86400 * (_calls % 3)
time.time = _time
"""


def test_a_clock_that_jumps_by_days_moves_no_measured_time(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(JUMPING)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    process = bench.start_session("tree", PYTHONPATH=path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    cells = [read_cell(bench.folder / f"results/small/cells/{name}.json") for name in bench.cells()]
    begun = [cell.started_unix for cell in cells]
    assert max(begun) - min(begun) > 43200, "the clock did not jump"
    for cell in cells:
        assert 0 < cell.seconds < 3600
        for run in cell.runs:
            for request in run.requests:
                times = [run.start_s, request.sent_s, *(at for at, _ in request.chunks), request.done_s, run.end_s]
                assert times == sorted(times)
                assert times[-1] - times[0] < 3600
