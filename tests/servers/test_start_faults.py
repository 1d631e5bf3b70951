"""Faults of real server processes, and what is left behind afterwards: nothing."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fakes import PORTS, Files, fake_python, leased, with_nonce

from ddtree.plan.schema import Server
from ddtree.servers import RunningServer, ServerFailed, leases, start

Launch = Callable[..., RunningServer]
pytestmark = pytest.mark.slow


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.02)


def test_a_good_server_is_ready_alive_and_gone_after_stop(launch_fake: Launch, lease_dir: Path) -> None:
    with launch_fake("good", method="ddtree", budget=7, draft_window=64, threads=1) as server:
        assert server.alive()
        assert server.info["pid"] == server.pid
        assert server.info["budget"] == 7
        assert server.info["draft_window"] == 64
        assert leased(lease_dir) == [f"port-{server.url.rpartition(':')[2]}"]
    assert not server.alive()
    assert not psutil.pid_exists(server.pid)
    assert leased(lease_dir) == []
    server.stop()


@pytest.mark.parametrize(
    ("mode", "category", "said"),
    [
        ("dies", "crash_in_load", "RuntimeError: the checkpoint has no layer 7 (exit status 1)"),
        ("bad_flag", "bad_flag", "unrecognized arguments: --budgget 7"),
        ("missing_model", "missing_model", "/nonexistent/config.json"),
        ("killed", "crash_in_load", "exit status 137"),
        ("oom_lingers", "out_of_memory", "CUDA out of memory"),
    ],
)
def test_a_failing_start_gives_its_reason_without_waiting_for_the_timeout(
    launch_fake: Launch, lease_dir: Path, mode: str, category: str, said: str
) -> None:
    with pytest.raises(ServerFailed) as failed:
        launch_fake(mode, start_timeout_s=300)
    assert failed.value.reason.category == category
    assert said in failed.value.reason.detail
    assert any(line.startswith("loading on port") for line in failed.value.reason.log_tail)
    assert leased(lease_dir) == []


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("never_listens", "never answered"),
        ("never_generates", "has not generated a token"),
        ("generation_fails", "HTTP Error 503"),
    ],
)
def test_a_server_that_never_gets_ready_times_out(launch_fake: Launch, lease_dir: Path, mode: str, said: str) -> None:
    with pytest.raises(ServerFailed) as failed:
        launch_fake(mode, start_timeout_s=1.5)
    assert failed.value.reason.category == "start_timeout"
    assert said in failed.value.reason.detail
    assert leased(lease_dir) == []


def test_a_missing_interpreter_is_named(tmp_path: Path, lease_dir: Path) -> None:
    server = Server(model="tiny", method="autoregressive")
    with pytest.raises(ServerFailed, match="cannot start /nowhere/python: No such file"):
        start("arm", server, Files(tmp_path), Path("/nowhere/python"), tmp_path / "server.log", PORTS, "test")
    assert leased(lease_dir) == []


def test_a_setting_that_is_silently_dropped_fails_the_start(launch_fake: Launch, lease_dir: Path) -> None:
    with pytest.raises(ServerFailed) as failed:
        launch_fake("ignores_window", method="dflash", draft_window=2048)
    assert failed.value.reason.category == "effective_differs"
    assert failed.value.reason.detail == "draft_window: asked for 2048, the server runs with None"
    assert leased(lease_dir) == []


def test_another_process_with_the_right_answers_is_not_mistaken_for_ours(launch_fake: Launch) -> None:
    with pytest.raises(ServerFailed) as failed:
        launch_fake("stale", start_timeout_s=1.5)
    assert failed.value.reason.category == "start_timeout"
    assert "another process" in failed.value.reason.detail


def test_a_stale_server_on_the_port_moves_us_to_the_next(launch_fake: Launch) -> None:
    with socket.socket() as stale:
        stale.bind(("127.0.0.1", 0))
        stale.listen()
        taken = stale.getsockname()[1]
        with launch_fake("good", ports=(taken, taken + 20)) as server:
            assert server.url != f"http://127.0.0.1:{taken}"


def test_sigterm_is_followed_by_sigkill_after_the_grace(launch_fake: Launch, lease_dir: Path) -> None:
    server = launch_fake("ignores_sigterm", stop_grace_s=0.3)
    server.stop()
    assert not psutil.pid_exists(server.pid)
    assert leased(lease_dir) == []


def test_workers_that_detached_themselves_are_stopped_too(launch_fake: Launch) -> None:
    server = launch_fake("daemon_children", stop_grace_s=0.3)
    assert len(with_nonce(server.nonce)) == 4  # guard, server, two daemons
    server.stop()
    assert with_nonce(server.nonce) == []


def test_workers_do_not_outlive_a_crashed_server(launch_fake: Launch, lease_dir: Path) -> None:
    server = launch_fake("daemon_children", stop_grace_s=60)
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.alive() and with_nonce(server.nonce) == [], "the tree ends with the server")
    assert server.death().category == "server_died"
    assert "137" in server.death().detail
    assert leased(lease_dir) == []
    server.stop()


def test_a_killed_guard_takes_the_server_along_and_stop_sweeps_the_rest(launch_fake: Launch) -> None:
    server = launch_fake("daemon_children")
    os.kill(server._guard.pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(server.pid), "the server dies with its guard")
    assert not server.alive()
    server.stop()
    assert with_nonce(server.nonce) == []


OWNER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from fakes import Files, PORTS
from ddtree.plan.schema import Server
from ddtree.servers import start
import time
folder = Path({folder!r})
server = start("arm", Server(model="tiny", method="autoregressive", stop_grace_s={grace_s}), Files(folder),
               folder / "python-{mode}", folder / "server.log", PORTS, "test")
print(server.nonce, server._guard.pid, flush=True)
time.sleep(600)
"""


def owner_process(folder: Path, mode: str, grace_s: float = 5) -> tuple[subprocess.Popen[str], str, int]:
    fake_python(folder, mode)
    code = OWNER.format(path=[str(Path(__file__).parent)], folder=str(folder), mode=mode, grace_s=grace_s)
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    nonce, guard_pid = owner.stdout.readline().split()
    return owner, nonce, int(guard_pid)


def test_nothing_survives_a_killed_owner(tmp_path: Path, lease_dir: Path) -> None:
    owner, nonce, guard_pid = owner_process(tmp_path, "daemon_children", grace_s=0.3)
    with owner:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guard_pid, number)  # must not end the guard before its server
        assert len(leased(lease_dir)) == 1
        assert len(with_nonce(nonce)) == 4
        owner.kill()
    wait_until(lambda: with_nonce(nonce) == [], "server, daemons and guard end")
    assert leased(lease_dir) == []


def test_the_next_lease_holder_ends_what_a_killed_owner_and_guard_left(tmp_path: Path, lease_dir: Path) -> None:
    owner, nonce, guard_pid = owner_process(tmp_path, "daemon_children")
    with owner:
        os.kill(owner.pid, signal.SIGSTOP)  # it must not notice the guard's end
        os.kill(guard_pid, signal.SIGKILL)
        owner.kill()
    wait_until(lambda: len(with_nonce(nonce)) == 2, "only the daemons are left")
    leases.acquire("next", "n", 0, PORTS).close()
    assert with_nonce(nonce) == []
