"""Runs a server and sees to it that nothing of it survives its owner.

    python guard.py GRACE_S LEASE_FDS COMMAND...

The guard is a child subreaper: workers that detach themselves come back to it, so the whole tree is always known. When
its stdin reaches end of file (the owner ended, however) the tree gets SIGTERM, GRACE_S seconds, then SIGKILL; when the
server ends by itself its leftovers are killed at once and the guard exits with its status. The leases, inherited as
open descriptors (comma separated, `-` for none), end with the guard. Standard library only: it runs from its file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shlex
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
KILL_WAIT_S = 60.0
FREE_WAIT_S, FREE_MARGIN_MIB = 30.0, 256
_libc = ctypes.CDLL(None)


def main(grace_s: float, lease_fds: list[int], command: list[str]) -> int:
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A handler, not SIG_IGN: exec resets it, so the server starts with default signals.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
    say(f"starting {shlex.join(command)}")
    before = gpu_memory()
    try:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_the_guard
        )
    except OSError as error:
        print(f"error: cannot start {command[0]}: {error.strerror}", flush=True)
        return 127
    ended = os.pidfd_open(server.pid)
    ready, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
    if ended in ready:
        status = server.wait()
        status = status if status >= 0 else 128 - status
        say(f"server ended with status {status}" + (f" ({signal.Signals(status - 128).name})" if status > 128 else ""))
        end_tree(0.0)
    else:
        status = 0
        say("stopping the server")
        end_tree(grace_s)
    await_free(before)
    for fd in lease_fds:
        os.ftruncate(fd, 0)
    return status


def _die_with_the_guard() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def say(text: str) -> None:
    print(f"guard: {text}", flush=True)


def descendants() -> list[int]:
    """Living processes below the guard, from one look at /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry))
    found, todo = [], [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def gpu_memory() -> dict[str, int]:
    """MiB in use on each GPU of the server; empty without GPUs or nvidia-smi."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not gpus:
        return {}
    query = ["nvidia-smi", "-i", gpus, "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
        return {uuid: int(used) for uuid, used in (line.split(", ") for line in text.splitlines())}
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}


def await_free(before: dict[str, int]) -> None:
    """The driver frees a killed process's memory a little later: wait until no GPU has more in use than `before`."""
    deadline = time.monotonic() + FREE_WAIT_S
    while before:
        used = gpu_memory()
        held = {gpu: used[gpu] for gpu in used if used[gpu] > before.get(gpu, 0) + FREE_MARGIN_MIB}
        if not held:
            return
        if time.monotonic() > deadline:
            say(f"memory is still in use after the end of the server: {held} MiB, before its start {before} MiB")
            return
        time.sleep(0.2)


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_tree(grace_s: float) -> None:
    """SIGTERM and up to `grace_s` seconds, then SIGKILL until nothing is left."""
    if grace_s > 0:
        send(signal.SIGTERM, descendants())
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        reap()
        if not descendants():
            return
        time.sleep(0.05)
    deadline = time.monotonic() + KILL_WAIT_S
    while alive := descendants():
        send(signal.SIGKILL, alive)
        reap()
        if time.monotonic() > deadline:
            say(f"processes {alive} cannot be killed")
            return
        time.sleep(0.02)
    reap()


if __name__ == "__main__":
    fds = [] if sys.argv[2] == "-" else [int(fd) for fd in sys.argv[2].split(",")]
    sys.exit(main(float(sys.argv[1]), fds, sys.argv[3:]))
