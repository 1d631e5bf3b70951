"""Disks that are full or read-only, writers that are killed, files that were changed: no half result is ever whole."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_bench import Bench

from ddtree.cells import read_cell
from ddtree.files import remove_leftovers

pytestmark = pytest.mark.slow
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def session(bench: Bench, before: Callable[[], object]) -> subprocess.CompletedProcess[str]:
    """The tree session in a process that first runs `before`."""
    command = [sys.executable, "scripts/session.py", "--spec", "results/small/spec/sessions/tree.json"]
    command += ["--log", "logs/tree.log", "--manifest", "results/small/sessions/tree.json"]
    return subprocess.run(
        command, cwd=bench.folder, env=bench.environment, capture_output=True, text=True, timeout=60, preexec_fn=before
    )


def a_file_may_have(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def modes_hold_for_root_too() -> None:
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def test_a_cell_that_does_not_fit_on_the_disk_is_one_line_and_no_result(bench: Bench) -> None:
    ended = session(bench, lambda: a_file_may_have(2048))
    assert ended.returncode == 1
    said = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    assert said[0].startswith("error: results/small/cells/tree/")
    assert said[0].endswith(".json: File too large; finished cells are kept")
    assert not [path for path in (bench.folder / "results/small/cells").rglob("*") if path.is_file()]
    assert not bench.processes()
    bench.run_session("tree")
    assert bench.statuses("tree") == {"ok"}


def test_a_read_only_folder_is_named(bench: Bench) -> None:
    folder = bench.folder / "results/small/cells/tree"
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    ended = session(bench, modes_hold_for_root_too)
    folder.chmod(0o755)
    assert ended.returncode == 1
    assert "error: results/small/cells/tree/" in ended.stderr
    assert "Permission denied; finished cells are kept" in ended.stderr
    assert not bench.cells()
    assert not bench.processes()


WRITER = """
import os, signal, sys
from pathlib import Path
from ddtree import files
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.write_atomically(Path(sys.argv[1]), "new")
"""


@pytest.mark.parametrize("before", [None, "old"])
def test_a_writer_killed_before_the_rename_leaves_what_was_there(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "c1.json"
    if before:
        path.write_text(before)
    ended = subprocess.run([sys.executable, "-c", WRITER, str(path)], timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert (path.read_text() if path.exists() else None) == before
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ([path.name] if before else [])


def test_doubtful_files_are_refused_by_name_and_measured_again(bench: Bench) -> None:
    bench.run_session("tree")
    cells = bench.folder / "results/small/cells/tree"
    truncated, foreign, edited = cells / "short/c1.json", cells / "short/c2.json", cells / "other/c1.json"
    truncated.write_bytes(truncated.read_bytes()[:1000])
    foreign.write_text(json.dumps(json.loads(foreign.read_text()) | {"schema_version": 999}))
    edited.write_text(edited.read_text().replace('"attempt":1', '"attempt":2'))
    (bench.folder / "logs/sessions/small/tree.log").unlink()
    bench.run_session("tree")
    log = (bench.folder / "logs/sessions/small/tree.log").read_text()
    assert "short/c1.json: not a whole JSON file" in log
    assert "short/c2.json: schema version 999, this program reads 1" in log
    assert "other/c1.json: the content does not match its seal" in log
    for path in (truncated, foreign, edited):
        assert read_cell(path).attempt == 1
