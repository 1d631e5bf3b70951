"""Is the client itself fast enough? A watch on its event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType

import numpy as np

from ddtree.bench import neighbours
from ddtree.bench.records import ClientHealth, Request

TICK_S = 0.01
# Late by less than this, or by less than this share of the usual gap between chunks, no time stamp is worth doubting.
TOLERATED_S, TOLERATED_SHARE = 0.01, 0.1


class LoopWatch:
    """`async with LoopWatch() as watch:` measures by how much a sleeping task wakes late."""

    def __init__(self) -> None:
        self.lags_s: list[float] = []

    async def __aenter__(self) -> LoopWatch:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _watch(self) -> None:
        while True:
            begin = time.monotonic()
            await asyncio.sleep(TICK_S)
            self.lags_s.append(max(0.0, time.monotonic() - begin - TICK_S))


def verdict(lags_s: list[float], requests: Iterable[Request], foreign_cores: float | None = None) -> ClientHealth:
    """`distorted` when the 99th percentile of the loop's lag is more than a tenth of the median gap between chunks."""
    gaps = [late[0] - early[0] for r in requests for early, late in itertools.pairwise(r.chunks)]
    tolerated = max(TOLERATED_S, TOLERATED_SHARE * float(np.median(gaps))) if gaps else TOLERATED_S
    p99 = float(np.percentile(lags_s, 99)) if lags_s else 0.0
    return ClientHealth(
        loop_lag_max_s=max(lags_s, default=0.0),
        loop_lag_p99_s=p99,
        distorted=p99 > tolerated,
        foreign_cores=foreign_cores,
        disturbed=foreign_cores is not None and neighbours.disturbed(foreign_cores),
    )
