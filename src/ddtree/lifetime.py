"""A session lives no longer than whoever started it, and every way of ending it runs the same clean-up."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """The session was told to end. A KeyboardInterrupt, since an event loop passes no other exception on."""


def stop_on_signals() -> None:
    """Raise Stopped in the main thread at the first SIGINT, SIGTERM or SIGHUP; ignore later ones during clean-up."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(signal.Signals(number).name)

    for each in SIGNALS:
        signal.signal(each, stop)


def end_with(owner: int) -> None:
    """Send SIGTERM to this process when process `owner` ends, even by SIGKILL. Raises Stopped if it is gone already."""
    try:
        descriptor = os.pidfd_open(owner)
    except ProcessLookupError:
        raise Stopped("the owner has ended") from None

    def watch() -> None:
        # poll, unlike select, takes descriptors above 1023.
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="owner", daemon=True).start()


@contextmanager
def exclusive(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`; call `waiting` once if another process holds it. The kernel frees it at exit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
