"""Did anything else use the cores while a run was measured? Then its times are not the server's alone.

On a CPU a stray process bends a speed-up more than any method does, and a run cannot tell by itself that it was slow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

# Share of the usable cores that others may take: the system's own background stays well below it.
TOLERATED_SHARE = 0.05


class CoreWatch:
    """From its creation to `foreign_cores()`: how many cores' worth of time others than `ours` used.

    `ours` are process ids; everything below them is ours too.

    Time that a hypervisor gave to somebody else (steal) counts as foreign.
    """

    def __init__(self, ours: Sequence[int]) -> None:
        self._ours = ours
        self._begin, self._busy, self._own = time.monotonic(), _busy_s(), _used_s(ours)

    def foreign_cores(self) -> float:
        elapsed = time.monotonic() - self._begin
        foreign = (_busy_s() - self._busy) - (_used_s(self._ours) - self._own)
        return max(0.0, foreign / elapsed) if elapsed > 0 else 0.0


def disturbed(foreign_cores: float) -> bool:
    return foreign_cores > TOLERATED_SHARE * len(os.sched_getaffinity(0))


def _busy_s() -> float:
    """Busy seconds of the cores that this process may use, idle and waiting for disks left out; guests are in user."""
    usable = os.sched_getaffinity(0)
    busy = 0.0
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        if core in usable:
            busy += times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    return busy


def _used_s(roots: Iterable[int]) -> float:
    """CPU seconds of the processes `roots` and everything below them, each counted once."""
    processes: dict[int, psutil.Process] = {}
    for pid in roots:
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            processes |= {process.pid: process for process in (root, *root.children(recursive=True))}
    used = 0.0
    for process in processes.values():
        with suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system
    return used
