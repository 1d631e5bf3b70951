"""Start one server, know that it is the right one, stop it without a trace."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from ddtree.bench.records import Reason
from ddtree.plan.schema import Server
from ddtree.redaction import redact_settings
from ddtree.servers import effective, failures, guard, identity, launch, leases
from ddtree.servers.command import Files
from ddtree.servers.identity import ServerFailed


class RunningServer:
    """A server below its guard. `url` has no trailing slash; `info` is /server_info as it was when it became ready;
    `gpus` are those that it leases."""

    def __init__(
        self,
        url: str,
        nonce: str,
        log: Path,
        guard: subprocess.Popen[bytes],
        grace_s: float,
        dialect: identity.Dialect,
        gpus: tuple[str, ...] = (),
    ):
        self.url, self.nonce, self.log, self.gpus = url, nonce, log, gpus
        self.info: dict[str, object] = {}
        self._guard, self._grace_s, self._dialect = guard, grace_s, dialect

    @property
    def pid(self) -> int:
        pid = self.info["pid"]
        assert isinstance(pid, int)  # is_ours has seen it
        return pid

    def alive(self) -> bool:
        """The process is up, healthy, and the one that was started."""
        if self._guard.poll() is not None:
            return False
        try:
            identity.get(self.url + "/health")
            found = self._dialect.who(self.url, self._guard.pid, identity.ANSWER_S)
            return identity.is_ours(found, self.nonce, self._guard.pid)
        except identity.UNREACHABLE:
            return False

    def death(self) -> Reason:
        """Why it is no longer alive, from its log."""
        status = self._guard.poll()
        note = "it runs but does not answer" if status is None else f"exit status {status}"
        return failures.classify(self.log.read_text(errors="replace"), "server_died", note)

    def last_words(self) -> list[str]:
        """The end of its log."""
        return failures.lines(self.log.read_text(errors="replace"))[-failures.TAIL_LINES :]

    def stop(self) -> None:
        """Ends the whole process tree and frees its leases; does nothing the second time."""
        if self._guard.stdin and not self._guard.stdin.closed:
            self._guard.stdin.close()
        try:
            self._guard.wait(self._grace_s + guard.KILL_WAIT_S + guard.FREE_WAIT_S + 5)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        leases.sweep(self.nonce)  # finds something only if the guard itself was killed

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


def start(
    name: str, server: Server, files: Files, python: Path, log: Path, ports: tuple[int, int], owner: str
) -> RunningServer:
    """Leases, starts, waits until ready, checks the configuration in force.

    `python` is the engine's interpreter, `log` gets everything that the server prints (appended), `ports` is the
    inclusive range to choose from, `owner` is written into the leases for people who look. Raises ServerFailed.
    """
    nonce, engine = secrets.token_hex(16), launch.ENGINES[server.engine]
    try:
        held = leases.acquire(owner, nonce, server.gpus, ports, block=engine.ports, exclusive=bool(server.exclusive))
    except leases.LeaseFailed as error:
        raise ServerFailed(Reason(category=error.category, detail=error.detail)) from None
    try:
        try:
            command = launch.command(name, server, files, python, held.port, nonce)
        except ValueError as error:
            raise ServerFailed(Reason(category="other", detail=str(error))) from None
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            begin = output.tell()
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    guard.__file__,
                    f"{server.stop_grace_s}",
                    ",".join(map(str, held.fds)),
                    *command.argv,
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=launch.environment(nonce, held.gpus, (server.environment or {}) | command.environment),
                pass_fds=held.fds,
                start_new_session=True,
            )
    finally:
        held.close()  # from here on they are the guard's

    def written() -> str:
        with log.open("rb") as file:
            file.seek(begin)
            return file.read().decode(errors="replace")

    url = f"http://127.0.0.1:{held.port}"
    running = RunningServer(url, nonce, log, process, server.stop_grace_s, engine.dialect, held.gpus)
    try:
        found = identity.wait_ready(url, nonce, process, written, server.start_timeout_s, engine.dialect)
        running.info = redact_settings(engine.dialect.observed(found, written()))
        asked = command.asked | effective.comparable(command.also, running.info)
        if wrong := effective.differences(asked, running.info):
            tail = failures.lines(written())[-failures.TAIL_LINES :]
            raise ServerFailed(Reason(category="effective_differs", detail="; ".join(wrong), log_tail=tail))
    except BaseException:
        running.stop()
        raise
    return running
