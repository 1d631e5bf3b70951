import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import leased

from ddtree.servers import leases

CONTENDER = """
import os, sys
from pathlib import Path
from ddtree.servers import leases
folder, gpus = Path(sys.argv[1]), int(sys.argv[2])
for _ in range(8):
    held = leases.acquire("contender", f"n{os.getpid()}", gpus, (19401, 19404), wait_s=60)
    marks = [folder / f"{what}.mark" for what in (held.port, *held.gpus)]
    for mark in marks:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails if somebody else believes to hold it
    for mark in marks:
        mark.unlink()
    held.close()
"""


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, busy: dict[int, int]) -> None:
    """A stand-in on PATH that reports `count` GPUs and pids that compute on some of them."""
    cards = "\\n".join(f"GPU {i}: Fake (UUID: GPU-{i:04d})" for i in range(count))
    apps = "\\n".join(f"GPU-{gpu:04d}, {pid}" for gpu, pid in busy.items())
    script = f'#!/bin/sh\ncase "$1" in\n-L) printf "{cards}\\n";;\n*) printf "{apps}\\n";;\nesac\n'
    (folder / "nvidia-smi").write_text(script)
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.slow
def test_starters_never_share_a_port_or_a_gpu(tmp_path: Path, lease_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, 3, {})
    contenders = [
        subprocess.Popen([sys.executable, "-c", CONTENDER, tmp_path, str(gpus)], stderr=subprocess.PIPE, text=True)
        for gpus in (0, 1, 2, 1, 2, 3)
    ]
    for contender in contenders:
        _, errors = contender.communicate(timeout=120)
        assert contender.returncode == 0, errors
    assert leased(lease_dir) == []


def test_the_granted_gpus_of_a_scheduler_are_the_pool(lease_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    held = leases.acquire("a", "n", 2, (19401, 19404))
    assert held.gpus == ("5", "7")
    held.close()


def test_more_gpus_than_there_are_is_refused_at_once(lease_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(leases.LeaseFailed, match="2 GPUs asked for, 0 visible") as failed:
        leases.acquire("a", "n", 2, (19401, 19404))
    assert failed.value.category == "gpus"


def test_a_gpu_that_others_compute_on_is_passed_over(
    tmp_path: Path, lease_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(tmp_path, monkeypatch, 2, {0: 4242})
    held = leases.acquire("a", "n", 1, (19401, 19404))
    assert held.gpus == ("1",)
    held.close()
    with pytest.raises(leases.LeaseFailed, match="GPU 0: pid 4242"):
        leases.acquire("a", "n", 2, (19401, 19404))
    assert leased(lease_dir) == []


def test_no_free_port_is_said_with_the_range(lease_dir: Path) -> None:
    held = leases.acquire("a", "n", 0, (19405, 19405))
    with pytest.raises(leases.LeaseFailed, match="between 19405 and 19405") as failed:
        leases.acquire("b", "m", 0, (19405, 19405), wait_s=0)
    assert failed.value.category == "port"
    held.close()
    leases.acquire("b", "m", 0, (19405, 19405), wait_s=0).close()


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("DDTREE_LEASE_DIR", str(tmp_path / "link"))
    with pytest.raises(leases.LeaseFailed, match="must be a directory of this user"):
        leases.acquire("a", "n", 0, (19405, 19405))


def test_a_block_of_ports_is_consecutive_and_steps_over_a_taken_one(lease_dir: Path) -> None:
    one = leases.acquire("a", "n", 0, (19412, 19412))
    block = leases.acquire("b", "m", 0, (19410, 19419), block=5)
    assert block.port == 19413
    assert sorted(leased(lease_dir)) == [f"port-{port}" for port in range(19412, 19418)]
    with pytest.raises(leases.LeaseFailed, match="no free block of 3 ports between 19410 and 19419"):
        leases.acquire("c", "k", 0, (19410, 19419), wait_s=0, block=3)
    for held in (one, block):
        held.close()
    assert leased(lease_dir) == []
