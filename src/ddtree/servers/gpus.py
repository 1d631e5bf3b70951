"""Which GPUs this process may use, and which of them somebody else computes on."""

from __future__ import annotations

import os
import subprocess


def _query(what: str) -> list[list[str]]:
    """Rows of one nvidia-smi query; none without a driver."""
    try:
        out = subprocess.run(
            ["nvidia-smi", what, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [[field.strip() for field in line.split(",")] for line in out.splitlines() if line.strip()]


def visible() -> list[str]:
    """Ids as CUDA_VISIBLE_DEVICES takes them: those a scheduler granted, else all of the machine."""
    granted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if granted is not None:
        return [gpu.strip() for gpu in granted.split(",") if gpu.strip()]
    return [row[0] for row in _query("--query-gpu=index")]


def occupants() -> dict[str, list[int]]:
    """Pids that compute on each GPU, under both its index and its UUID."""
    index_of = {row[1]: row[0] for row in _query("--query-gpu=index,uuid")}
    found: dict[str, list[int]] = {}
    for uuid, pid, *_ in _query("--query-compute-apps=gpu_uuid,pid"):
        for gpu in (uuid, index_of.get(uuid, uuid)):
            found.setdefault(gpu, []).append(int(pid))
    return found
