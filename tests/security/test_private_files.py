"""Files that are not finished, or not for others, are their owner's alone."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from ddtree import files
from ddtree.files import write_atomically
from ddtree.quality.sandbox import Sandbox, Task
from ddtree.servers import leases


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_result_is_private_until_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "cell.json"
    kept, modes = os.fchmod, []

    def watched(descriptor: int, wanted: int) -> None:
        kept(descriptor, wanted)
        modes.append((wanted, os.fstat(descriptor).st_size))

    monkeypatch.setattr(files.os, "fchmod", watched)
    write_atomically(path, "{}")
    assert modes == [(0o600, 0), (0o644, 2)]
    assert mode(path) == 0o644


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_lies_in_the_temporary_place_is_never_written_through(tmp_path: Path, kind: str):
    victim, aside = tmp_path / "victim", tmp_path / f".cell.json.{os.getpid()}.tmp"
    victim.write_text("precious")
    aside.symlink_to(victim) if kind == "link" else os.link(victim, aside)
    write_atomically(tmp_path / "cell.json", "{}")
    assert (victim.read_text(), (tmp_path / "cell.json").read_text()) == ("precious", "{}")
    assert not aside.exists()


def test_leases_lie_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DDTREE_LEASE_DIR", str(tmp_path / "leases"))
    assert mode(leases.directory()) == 0o700


def test_a_lease_folder_that_is_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "leases").symlink_to(tmp_path)
    monkeypatch.setenv("DDTREE_LEASE_DIR", str(tmp_path / "leases"))
    with pytest.raises(leases.LeaseFailed, match="must be a directory of this user"):
        leases.directory()


def test_the_folder_of_generated_programs_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[int] = []

    class Watched(Sandbox):
        def _command(self, folder: str) -> list[str]:
            seen.append(mode(Path(folder)))
            return ["true"]

    Watched("rlimits", tmp_path).run(Task("", "", "", "f"))
    assert seen == [0o700]
    assert list(tmp_path.iterdir()) == []
