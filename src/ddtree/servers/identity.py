"""Readiness: this very process, by its nonce and its place below our guard, has generated a token.

An older server that still answers on the port has another nonce; a server that answers before its weights are loaded
has not generated; a process that is dead or said something final in its log is reported at once, not at the timeout.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from ddtree.bench.records import Reason
from ddtree.servers import failures

POLL_S = 0.05
ANSWER_S = 10.0
UNREACHABLE = (OSError, ValueError, http.client.HTTPException)
# A proxy from the environment must not stand between us and a server of this host.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotReady(Exception):
    """The server answers, but not as one that generates."""


class ServerFailed(Exception):
    """A server did not start as asked; `reason` says why."""

    def __init__(self, reason: Reason):
        super().__init__(f"{reason.category}: {reason.detail}")
        self.reason = reason


@dataclass
class _Seen:
    """What the probing thread has found so far."""

    info: dict[str, object] | None = None
    last: str = "the server never answered"


@dataclass(frozen=True)
class Dialect:
    """How one engine is asked. `who` (url, pid of the guard, time limit) gives `nonce` and `pid` at little cost to the
    server, `info` the same with all of its settings; `generates` (url, time limit) returns once a token was generated;
    each raises one of UNREACHABLE or NotReady. `observed` (info, log) is the configuration in force."""

    who: Callable[[str, int, float], dict[str, object]]
    info: Callable[[str, int, float], dict[str, object]]
    generates: Callable[[str, float], None]
    observed: Callable[[dict[str, object], str], dict[str, object]]


def get(url: str, timeout_s: float = ANSWER_S) -> bytes:
    """Body of a successful GET; raises one of UNREACHABLE."""
    with _opener.open(url, timeout=timeout_s) as answer:
        return bytes(answer.read())


def post(url: str, content: object, timeout_s: float = ANSWER_S) -> bytes:
    """Body of a successful POST of JSON; raises one of UNREACHABLE."""
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with _opener.open(request, timeout=timeout_s) as answer:
        return bytes(answer.read())


def server_info(url: str, timeout_s: float = ANSWER_S) -> dict[str, object]:
    info = json.loads(get(url + "/server_info", timeout_s))
    if not isinstance(info, dict):
        raise ValueError("/server_info is no JSON object")
    return info


def _health_generate(url: str, timeout_s: float) -> None:
    get(url + "/health_generate", timeout_s)


def is_ours(info: dict[str, object], nonce: str, guard_pid: int) -> bool:
    pid = info.get("pid")
    if info.get("nonce") != nonce or not isinstance(pid, int):
        return False
    try:
        return guard_pid in (parent.pid for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False


EMBEDDED = Dialect(
    who=lambda url, _, timeout_s: server_info(url, timeout_s),
    info=lambda url, _, timeout_s: server_info(url, timeout_s),
    generates=_health_generate,
    observed=lambda info, _: info,
)


def wait_ready(
    url: str, nonce: str, guard: subprocess.Popen[bytes], log: Callable[[], str], timeout_s: float, dialect: Dialect
) -> dict[str, object]:
    """/server_info of the started process once it has generated a token. Raises ServerFailed."""
    deadline = time.monotonic() + timeout_s
    seen, done, searched = _Seen(), threading.Event(), 0
    threading.Thread(target=_probe, args=(url, nonce, guard.pid, seen, done, deadline, dialect), daemon=True).start()
    try:
        while time.monotonic() < deadline:
            if guard.poll() is not None:
                raise ServerFailed(failures.classify(log(), "crash_in_load", f"exit status {guard.returncode}"))
            if seen.info is not None:
                return seen.info
            text = log()
            if failures.FATAL.search(text, max(0, searched - failures.LINE_CHARS)):
                raise ServerFailed(failures.classify(text, "crash_in_load", "said while loading"))
            searched = len(text)
            time.sleep(POLL_S)
        note = f"not ready after {timeout_s:g} s: {seen.last}"
        raise ServerFailed(Reason(category="start_timeout", detail=note, log_tail=failures.lines(log())[-15:]))
    finally:
        done.set()


def _probe(
    url: str, nonce: str, guard_pid: int, seen: _Seen, done: threading.Event, deadline: float, dialect: Dialect
) -> None:
    while not done.wait(POLL_S):
        try:
            found = dialect.who(url, guard_pid, 2)
            if not is_ours(found, nonce, guard_pid):
                seen.last = f"another process (pid {found.get('pid', 'unknown')}) answers on {url}"
                continue
            seen.last = "it answers, but has not generated a token"
            dialect.generates(url, max(1.0, deadline - time.monotonic()))
            seen.info = dialect.info(url, guard_pid, ANSWER_S)
            return
        except (*UNREACHABLE, NotReady, KeyError) as error:
            if not isinstance(error, ConnectionRefusedError):
                seen.last = f"{seen.last.split(' (')[0]} ({type(error).__name__}: {error})"
