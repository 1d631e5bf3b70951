"""A server that is to be measured alone is alone, and gets its turn."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ddtree.servers import leases

PORTS = (19450, 19469)


@pytest.fixture(autouse=True)
def _own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(leases, "POLL_S", 0.02)


class Asking(threading.Thread):
    """A session that waits for its leases."""

    def __init__(self, owner: str, gpus: int, exclusive: bool) -> None:
        super().__init__(daemon=True)
        self._asked = owner, gpus, exclusive
        self.held: leases.Leases | None = None
        self.start()

    def run(self) -> None:
        owner, gpus, exclusive = self._asked
        self.held = leases.acquire(owner, owner, gpus, PORTS, exclusive=exclusive)

    def got(self) -> leases.Leases:
        self.join(10)
        assert self.held is not None
        return self.held

    def waits(self) -> bool:
        time.sleep(0.3)
        return self.held is None


def test_an_exclusive_server_waits_for_the_others_and_newcomers_wait_for_it() -> None:
    shared = leases.acquire("shared", "shared", 1, PORTS)
    alone = Asking("alone", 1, exclusive=True)
    assert alone.waits()
    late = Asking("late", 1, exclusive=False)
    assert late.waits()  # though three GPUs are free: else the one that wants to be alone would never be
    shared.close()
    held = alone.got()
    assert leases.holders() == {"alone"}
    assert late.waits()
    held.close()
    late.got().close()


def test_two_exclusive_servers_take_turns_and_hold_servers_without_gpus_off() -> None:
    first = leases.acquire("first", "first", 2, PORTS, exclusive=True)
    second, cpu = Asking("second", 2, exclusive=True), Asking("cpu", 0, exclusive=False)
    assert second.waits()
    assert cpu.held is None
    first.close()
    second.got().close()
    cpu.got().close()
