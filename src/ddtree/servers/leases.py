"""Leases of GPUs and ports, so that two servers of one host never share any.

A lease is an flock on a file of a private, host-local directory. The server's guard inherits the descriptors: a lease
lasts exactly as long as the guard, and the kernel frees it whatever happens. The file's text names the server's nonce,
so that processes which outlived a killed guard are found and ended before their lease is given to somebody else.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ddtree.servers import gpus as gpu_info

POLL_S = 0.5
PORT_WAIT_S = 30.0
log = logging.getLogger(__name__)


class LeaseFailed(Exception):
    """What was asked for cannot be had; `category` as in records.Reason."""

    def __init__(self, category: str, detail: str):
        super().__init__(detail)
        self.category, self.detail = category, detail


@dataclass(frozen=True)
class Leases:
    gpus: tuple[str, ...]
    port: int  # the first one
    fds: tuple[int, ...]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def directory() -> Path:
    """DDTREE_LEASE_DIR, else one fixed place per user (not TMPDIR, which may differ between jobs of one host)."""
    folder = Path(os.environ.get("DDTREE_LEASE_DIR") or f"/tmp/ddtree-leases-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise LeaseFailed("other", f"{folder}: must be a directory of this user; set DDTREE_LEASE_DIR to another one")
    return folder


def acquire(
    owner: str,
    nonce: str,
    gpus: int,
    ports: tuple[int, int],
    wait_s: float = PORT_WAIT_S,
    block: int = 1,
    exclusive: bool = False,
) -> Leases:
    """Leases on `gpus` GPUs and `block` consecutive ports of the inclusive range, all or nothing; `exclusive` ones
    while no other server of ours runs on this host.

    Waits without limit for what another server of ours holds, `wait_s` for a port. Raises LeaseFailed when there are
    too few GPUs, when foreign processes sit on them, or when no port comes free.
    """
    pool = gpu_info.visible() if gpus else []
    if gpus > len(pool):
        raise LeaseFailed("gpus", f"{gpus} GPUs asked for, {len(pool)} visible")
    if gpus > 1 and any(gpu.is_slice for gpu in pool):
        raise LeaseFailed("gpus", f"{gpus} GPUs asked for, but these are MIG slices; allowed: gpus: 1, or whole GPUs")
    text = json.dumps({"owner": owner, "nonce": nonce, "pid": os.getpid()}).encode()
    deadline = time.monotonic() + wait_s
    announced, claim = False, None
    try:
        while True:
            with _allocation() as folder:
                _sweep_dead(folder)
                claim = claim or (_lock(folder / "exclusive.lock") if exclusive else None)
                host = _take_host(folder, exclusive, claim is not None)
                cards = _take_gpus(folder, pool, gpus) if host is not None else None
                taken = _take_ports(folder, ports, block) if cards is not None else None
                if host is not None and cards is not None and taken is not None:
                    port, port_fds = taken
                    leases = (*cards.values(), *port_fds)
                    for fd in leases:
                        os.pwrite(fd, text, 0)
                    return Leases(tuple(cards), port, (*leases, host))
                for fd in ([] if host is None else [host]) + list((cards or {}).values()):
                    os.close(fd)
            if cards is None:
                deadline = time.monotonic() + wait_s
            elif time.monotonic() > deadline:
                wanted = "port" if block == 1 else f"block of {block} ports"
                raise LeaseFailed("port", f"no free {wanted} between {ports[0]} and {ports[1]}")
            if not announced:
                what = f"{gpus} of {len(pool)} GPUs" if host is not None else "the end of an exclusive server"
                log.info("%s waits for %s", owner, "the machine" if exclusive else what if cards is None else "a port")
                announced = True
            time.sleep(POLL_S)
    finally:
        if claim is not None:
            os.close(claim)


def holders() -> set[str]:
    """Owners of the servers that run on this host right now."""
    found = set()
    with _allocation() as folder:
        for path in folder.glob("*.lease"):
            if (fd := _lock(path)) is not None:
                os.close(fd)
                continue
            with suppress(ValueError, KeyError, TypeError):
                found.add(str(json.loads(path.read_bytes())["owner"]))
    return found


def sweep(nonce: str) -> list[int]:
    """Kills every process whose environment carries this server's nonce; returns their pids."""
    mark, killed = f"DDTREE_NONCE={nonce}".encode(), set[int]()
    deadline = time.monotonic() + 10
    while found := [pid for pid in _pids() if pid != os.getpid() and mark in _environment(pid)]:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.add(pid)
        if time.monotonic() > deadline:
            log.warning("processes %s of a dead server cannot be killed", found)
            break
        time.sleep(0.02)
    return sorted(killed)


@contextmanager
def _allocation() -> Iterator[Path]:
    """One allocation at a time: nobody can hold half of what another one needs."""
    folder = directory()
    fd = os.open(folder / "allocation.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(fd)


def _lock(path: Path, mode: int = fcntl.LOCK_EX) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _take_host(folder: Path, exclusive: bool, claimed: bool) -> int | None:
    """Descriptor of the host's lock, which servers share unless they are exclusive. While one waits to be alone (its
    claim is held), nobody else begins, or it would wait forever."""
    if not claimed:
        if (fd := _lock(folder / "exclusive.lock")) is None:
            return None
        os.close(fd)
    return _lock(folder / "host.lock", fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)


def _take_gpus(folder: Path, pool: list[gpu_info.Gpu], count: int) -> dict[str, int] | None:
    """Device -> descriptor, or None when the others are leased."""
    if not count:
        return {}
    occupants = gpu_info.occupants()
    foreign: dict[str, list[int]] = {}
    free: dict[int, int] = {}
    for position, gpu in enumerate(pool):
        if (fd := _lock(folder / f"gpu-{gpu.identity.replace('/', '_')}.lease")) is None:
            continue
        if gpu.identity in occupants:
            foreign[gpu.device] = occupants[gpu.identity]
            os.close(fd)
        else:
            free[position] = fd
    chosen = gpu_info.choose(list(free), count, len(pool)) if len(free) >= count else []
    for position, fd in free.items():
        if position not in chosen:
            os.close(fd)
    if chosen:
        return {pool[position].device: free[position] for position in chosen}
    if len(pool) - len(foreign) < count:
        who = "; ".join(f"GPU {gpu}: pid {', '.join(map(str, pids))}" for gpu, pids in foreign.items())
        raise LeaseFailed("gpu_busy", f"{count} GPUs asked for, but other processes compute on them ({who})")
    return None


def _take_ports(folder: Path, ports: tuple[int, int], count: int) -> tuple[int, list[int]] | None:
    """(first port, descriptors) of the lowest free block."""
    fds: list[int] = []
    for port in range(ports[0], ports[1] + 1):
        if (fd := _take_port(folder, port)) is None:
            for held in fds:
                os.close(held)
            fds = []
            continue
        fds.append(fd)
        if len(fds) == count:
            return port - count + 1, fds
    for held in fds:
        os.close(held)
    return None


def _take_port(folder: Path, port: int) -> int | None:
    """Descriptor of the lease. Our own servers are told apart by it, foreign ones by trying to bind."""
    if (fd := _lock(folder / f"port-{port}.lease")) is None:
        return None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(fd)
            return None
    return fd


def _sweep_dead(folder: Path) -> None:
    """A lease that nobody holds but that still has text belongs to a server whose guard was killed."""
    for path in folder.glob("*.lease"):
        if not path.stat().st_size or (fd := _lock(path)) is None:
            continue
        try:
            nonce = json.loads(os.pread(fd, 4096, 0)).get("nonce")
        except (ValueError, AttributeError):
            nonce = None
        if nonce and (killed := sweep(nonce)):
            log.warning("ended processes %s, left behind by a server that was killed", killed)
        os.ftruncate(fd, 0)
        os.close(fd)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
