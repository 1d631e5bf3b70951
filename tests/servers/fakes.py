"""Fake interpreters for the start of servers, and looks at what a server left behind."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from ddtree.servers import leases

FAKE = Path(__file__).with_name("fake_server.py")
PORTS = (19300, 19399)


@dataclass(frozen=True)
class Files:
    target: Path
    drafter: Path | None = None


def fake_python(folder: Path, mode: str) -> Path:
    """An "interpreter" that runs the fake server whatever module it is asked for."""
    path = folder / f"python-{mode}"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} {mode} "$@"\n')
    path.chmod(0o755)
    return path


def leased(folder: Path) -> list[str]:
    """Names of the leases that some process holds."""
    held = []
    for path in folder.glob("*.lease"):
        fd = leases._lock(path)
        if fd is None:
            held.append(path.stem)
        else:
            os.close(fd)
    return held


def with_nonce(nonce: str) -> list[int]:
    return [pid for pid in psutil.pids() if f"DDTREE_NONCE={nonce}".encode() in leases._environment(pid)]
