"""What can hit a run: signals to its processes, and a full disk."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from small_bench import Bench

FULL_S = (0.2, 1.5)
# A dead Snakemake takes seconds to come back; another job is there only at the end of a run.
WEIGHTS = {"snakemake": 1.0, "session": 1.5, "guard": 2.0, "server": 2.0, "job": 0.2, "disk": 0.8}


def roles(bench: Bench, snakemake: int) -> dict[str, list[int]]:
    """Role -> processes that play it now; a disk is always there. The load client is a part of the session."""
    names = ("snakemake", "disk", "session", "guard", "server", "job")
    found: dict[str, list[int]] = {name: [] for name in names} | {"snakemake": [snakemake], "disk": [0]}
    for pid in bench.processes():
        try:
            words = psutil.Process(pid).cmdline()
        except psutil.Error:
            continue
        text = " ".join(words)
        if pid == snakemake or not words:
            continue
        if "guard.py" in text:
            found["guard"].append(pid)
        elif "ddtree.engine" in text:
            found["server"].append(pid)
        elif "scripts/session.py" in text:
            found["session"].append(pid)
        else:
            found["job"].append(pid)
    return {role: pids for role, pids in found.items() if pids}


SIGNALS: dict[str, list[tuple[str, signal.Signals]]] = {
    "snakemake": [("SIGKILL", signal.SIGKILL), ("SIGTERM", signal.SIGTERM), ("Ctrl-C", signal.SIGINT)],
    "session": [("SIGKILL", signal.SIGKILL), ("SIGTERM", signal.SIGTERM), ("SIGINT", signal.SIGINT)],
    "guard": [("SIGKILL", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)],
    "server": [("SIGKILL", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)],
    "job": [("SIGKILL", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)],
}


def choose(rng: random.Random, disk: bool) -> str:
    """The role to strike next."""
    chances = {role: weight for role, weight in WEIGHTS.items() if disk or role != "disk"}
    return rng.choices(list(chances), list(chances.values()))[0]


def strike(bench: Bench, snakemake: int, role: str, rng: random.Random, disk: Path | None) -> str:
    """One strike at a process of this role; returns its kind, or '' when there is none any more."""
    if role == "disk" and disk:
        fill(disk, rng.uniform(*FULL_S))
        return "disk full"
    alive = roles(bench, snakemake).get(role)
    if not alive:
        return ""
    name, number = rng.choice(SIGNALS[role])
    # A terminal's Ctrl-C reaches the whole foreground group.
    send: Callable[[int, int], None] = os.killpg if name == "Ctrl-C" else os.kill
    try:
        send(rng.choice(alive), number)
    except ProcessLookupError:
        return ""
    return f"{role} {name}"


def fill(disk: Path, seconds: float) -> None:
    """No free byte on `disk` for a while."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
        time.sleep(seconds)
    ballast.unlink()
