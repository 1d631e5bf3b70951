"""The one thread that owns the engine. The event loop hands it functions and gets every request's progress back."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from ddtree.engine.api import GenRequest, Progress

T = TypeVar("T")


class Engine(Protocol):
    """The part of ddtree.engine.engine.Engine that serving needs."""

    @property
    def has_work(self) -> bool: ...
    def add(self, request: GenRequest) -> None: ...
    def abort(self, rid: str) -> None: ...
    def step(self) -> list[Progress]: ...
    def score(self, input_ids: list[int], start: int, top: int) -> list[list[tuple[int, float]]]: ...
    def info(self) -> dict[str, object]: ...


class Worker:
    """Create and use it on the event loop's thread; `start` it before anything else.

    The engine is also built on its own thread. A thread that has once run a parallel region of OpenMP keeps its team of
    helpers, and with two teams OpenMP counts more threads than cores and lets waiting ones sleep at once instead of
    spinning: a step of the engine then took 42 ms instead of 26 ms on two cores.
    """

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._loop = asyncio.get_running_loop()
        self._built: Future[Engine] = Future()
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[str, asyncio.Queue[Progress]] = {}
        self._thread = threading.Thread(target=self._run, args=(build,), name="engine", daemon=True)

    async def start(self) -> dict[str, object]:
        """Build the engine; what it says of itself. Raises what the building raises."""
        self._thread.start()
        return (await asyncio.wrap_future(self._built)).info()

    @property
    def running(self) -> int:
        return len(self._streams)

    async def call(self, function: Callable[[Engine], T]) -> T:
        """Run `function` between two steps. Its ValueError is the caller's; any other exception ends the process."""
        future: Future[T] = Future()

        def command() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(self._engine))
                except ValueError as error:
                    future.set_exception(error)

        self._commands.put(command)
        return await asyncio.wrap_future(future)

    async def add(self, request: GenRequest) -> asyncio.Queue[Progress]:
        """Start a request; `close` it in any case. Raises ValueError, one line, when the engine refuses it.

        `rid` must never be used twice: steps of an aborted request may still be under way to its listener.
        """
        stream = self._streams[request.rid] = asyncio.Queue()
        try:
            await self.call(lambda engine: engine.add(request))
        except BaseException:
            self.close(request.rid)
            raise
        return stream

    def close(self, rid: str) -> None:
        """Nobody listens to this request any more: end it if it still runs."""
        if self._streams.pop(rid, None) is not None:
            self._commands.put(lambda: self._engine.abort(rid))

    def abort(self, rid: str) -> None:
        """End a request; its listener sees the finish reason `abort`."""
        if stream := self._streams.get(rid):
            self.close(rid)
            stream.put_nowait(Progress(rid, [], "abort", None))

    def _run(self, build: Callable[[], Engine]) -> None:
        try:
            self._engine = build()
        except BaseException as error:
            self._built.set_exception(error)
            return
        self._built.set_result(self._engine)
        try:
            while True:
                self._obey()
                if progress := self._engine.step():
                    self._loop.call_soon_threadsafe(self._deliver, progress)
        except BaseException:
            # A dead engine must not look alive: the process ends, and its log says why.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _obey(self) -> None:
        """Run what is queued; sleep here while there is nothing to decode."""
        while not (self._commands.empty() and self._engine.has_work):
            self._commands.get()()

    def _deliver(self, progress: list[Progress]) -> None:
        for item in progress:
            # A finished request leaves by itself; one that was closed meanwhile has no listener.
            stream = self._streams.pop(item.rid, None) if item.finish else self._streams.get(item.rid)
            if stream is not None:
                stream.put_nowait(item)
