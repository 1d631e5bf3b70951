"""CUDA_VISIBLE_DEVICES in every form, MIG slices, foreign processes, and which GPUs a server gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_gpus import SLICED, fake_nvidia_smi, on_path, whole
from hypothesis import given
from hypothesis import strategies as st

from ddtree.servers import gpus, leases
from ddtree.servers.gpus import Gpu

PORTS = (19420, 19449)


@pytest.fixture(autouse=True)
def _own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    on_path(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        ("0,1", [Gpu("0", "GPU-0000-aaaa"), Gpu("1", "GPU-0001-aaaa")]),
        (" 1 ", [Gpu("1", "GPU-0001-aaaa")]),
        ("GPU-0001", [Gpu("GPU-0001", "GPU-0001-aaaa")]),
        ("MIG-2222-aaaa", [Gpu("MIG-2222-aaaa", "MIG-2222-aaaa")]),
        ("MIG-GPU-0000-aaaa/3/0", [Gpu("MIG-GPU-0000-aaaa/3/0", "MIG-GPU-0000-aaaa/3/0")]),
        ("1,GPU-0001-aaaa", [Gpu("GPU-0001-aaaa", "GPU-0001-aaaa")]),
        ("1,-1,0", [Gpu("1", "GPU-0001-aaaa")]),
        ("NoDevFiles", []),
        ("", []),
        (
            None,
            [
                Gpu("MIG-1111-aaaa", "MIG-1111-aaaa"),
                Gpu("MIG-2222-aaaa", "MIG-2222-aaaa"),
                Gpu("1", "GPU-0001-aaaa"),
            ],
        ),
    ],
)
def test_the_pool_is_what_cuda_would_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, granted: str | None, expected: list[Gpu]
) -> None:
    fake_nvidia_smi(tmp_path, SLICED)
    if granted is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", granted)
    assert gpus.visible() == expected


def test_two_jobs_that_both_see_an_index_0_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    fake_nvidia_smi(tmp_path, "GPU 0: NVIDIA H200 (UUID: GPU-0005-aaaa)\n")
    one = leases.acquire("plan/one", "n1", 1, PORTS)
    fake_nvidia_smi(tmp_path, "GPU 0: NVIDIA H200 (UUID: GPU-0006-aaaa)\n")
    other = leases.acquire("plan/other", "n2", 1, PORTS)
    assert (one.gpus, other.gpus) == (("0",), ("0",))
    assert leases.holders() == {"plan/one", "plan/other"}
    one.close()
    assert leases.holders() == {"plan/other"}
    other.close()


def test_one_gpu_under_two_names_is_leased_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, whole(2))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    one = leases.acquire("plan/one", "n1", 1, PORTS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0001-aaaa,0")
    other = leases.acquire("plan/other", "n2", 1, PORTS)
    assert other.gpus == ("0",)
    one.close()
    other.close()


def test_a_foreign_process_is_named_whichever_way_its_gpu_was_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvidia_smi(tmp_path, whole(2), {"GPU-0001-aaaa": 4242})
    for granted in ("1", "GPU-0001", "GPU-0001-aaaa"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", granted)
        with pytest.raises(leases.LeaseFailed, match=rf"GPU {granted}: pid 4242") as failed:
            leases.acquire("plan/one", "n1", 1, PORTS)
        assert failed.value.category == "gpu_busy"


def test_slices_serve_one_gpu_each_and_no_tensor_parallel_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1111-aaaa,MIG-2222-aaaa")
    fake_nvidia_smi(tmp_path, SLICED, {"GPU-0000-aaaa": 4242})
    one = leases.acquire("plan/one", "n1", 1, PORTS)
    assert one.gpus == ("MIG-1111-aaaa",)
    with pytest.raises(leases.LeaseFailed, match="2 GPUs asked for, but these are MIG slices"):
        leases.acquire("plan/two", "n2", 2, PORTS)
    one.close()


def test_neighbours_stay_together_so_that_a_wide_server_gets_a_block(tmp_path: Path) -> None:
    fake_nvidia_smi(tmp_path, whole(8))
    held = [leases.acquire(f"plan/{count}-{i}", f"n{i}", count, PORTS) for i, count in enumerate((1, 4, 1, 2))]
    assert [lease.gpus for lease in held] == [("0",), ("4", "5", "6", "7"), ("1",), ("2", "3")]
    for lease in held:
        lease.close()


@given(st.sets(st.integers(0, 7)), st.integers(1, 8))
def test_a_choice_is_always_of_free_gpus_and_a_block_if_there_is_one(free: set[int], count: int) -> None:
    chosen = gpus.choose(sorted(free), count, 8)
    assert set(chosen) <= free
    assert len(chosen) == len(set(chosen)) == min(count, len(free))
    if any(set(range(start, start + count)) <= free for start in range(0, 9 - count, count)):
        assert chosen[0] % count == 0
        assert chosen[-1] - chosen[0] == count - 1
