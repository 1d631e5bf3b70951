"""An nvidia-smi that reports what a test says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest


def fake_nvidia_smi(folder: Path, listing: str, busy: Mapping[str, int] | None = None) -> None:
    """Writes it into `folder`: `listing` is the answer to -L, `busy` maps UUIDs to pids that compute there."""
    (folder / "listing").write_text(listing)
    (folder / "apps").write_text("".join(f"{uuid}, {pid}\n" for uuid, pid in (busy or {}).items()))
    script = folder / "nvidia-smi"
    apps = "--query-compute-apps=gpu_uuid,pid"
    script.write_text(f'#!/bin/sh\ncase "$1" in\n-L) cat "{folder}/listing";;\n{apps}) cat "{folder}/apps";;\nesac\n')
    script.chmod(0o755)


def whole(count: int) -> str:
    return "".join(f"GPU {i}: NVIDIA H200 (UUID: GPU-{i:04d}-aaaa)\n" for i in range(count))


SLICED = (
    "GPU 0: NVIDIA H200 (UUID: GPU-0000-aaaa)\n"
    "  MIG 3g.71gb     Device  0: (UUID: MIG-1111-aaaa)\n"
    "  MIG 3g.71gb     Device  1: (UUID: MIG-2222-aaaa)\n"
    "GPU 1: NVIDIA H200 (UUID: GPU-0001-aaaa)\n"
)


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
