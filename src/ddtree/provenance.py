"""Where numbers come from: code, packages, machine and its state while measuring. No names of people or hosts."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

import ddtree
from ddtree.files import sha256
from ddtree.plan.layout import Layout
from ddtree.plan.specs import SessionSpec
from ddtree.servers import leases
from ddtree.servers.gpus import nvidia_smi

DRIVER_PACKAGES = ("aiohttp", "numpy", "pydantic", "snakemake")
ENGINE_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "transformers", "sglang")
GPU_FACTS = ("name", "uuid", "driver_version", "memory.total", "clocks.max.sm", "power.limit")
GPU_STATE = ("clocks.sm", "temperature.gpu", "power.draw", "memory.used")


def collect(spec: SessionSpec, layout: Layout) -> dict[str, object]:
    """What stays the same over a session."""
    return {
        "ddtree": ddtree.__version__,
        "git": git(layout.root),
        "plan_sha256": _sha256_of(layout.plan_spec),
        "lock_sha256": None if spec.server.python else _sha256_of(layout.env(spec.server.env)),
        "driver": versions(None, DRIVER_PACKAGES),
        "engine": versions(
            layout.python(spec.server.env, spec.server.python), ENGINE_PACKAGES, spec.server.environment
        ),
        "machine": machine(),
        "gpus": gpus(GPU_FACTS),
    }


def moment(owner: str) -> dict[str, object]:
    """What changes from cell to cell. `neighbours` are the other servers on this host, as they sign their leases."""
    return {
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "memory_available_gib": round(psutil.virtual_memory().available / 2**30, 1),
        "neighbours": sorted(leases.holders() - {owner}),
        "gpus": gpus(GPU_STATE),
    }


def _sha256_of(path: Path) -> str | None:
    return sha256(path) if path.exists() else None


def _output(command: Sequence[str], also: Mapping[str, str] | None = None, timeout_s: float = 20) -> str | None:
    environment = os.environ | dict(also or {})
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def git(root: Path) -> dict[str, object] | None:
    """Revision and whether tracked files differ from it; None outside a repository."""
    revision = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    if revision is None:
        return None
    changes = _output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return {"revision": revision, "dirty": bool(changes)}


_VERSIONS = """
import importlib.metadata as m, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""


def versions(
    python: Path | None, packages: Sequence[str], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Versions of Python and of those `packages` that `python` (None: this one) finds when `environment`, which may
    hold a PYTHONPATH, is added to its own."""
    text = _output([str(python or sys.executable), "-c", _VERSIONS, *packages], environment)
    return {str(k): str(v) for k, v in json.loads(text).items()} if text else {}


def machine() -> dict[str, object]:
    memory = psutil.virtual_memory().total
    return {
        "cpu": cpu_model(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "os": platform.platform(),
        "host": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def gpus(fields: Sequence[str]) -> dict[str, dict[str, str]]:
    """These fields of every GPU that nvidia-smi sees, by index; empty without one."""
    lines = nvidia_smi(f"--query-gpu=index,{','.join(fields)}", "--format=csv,noheader")
    rows = [line.strip().split(", ") for line in lines if line.strip()]
    return {row[0]: dict(zip(fields, row[1:], strict=False)) for row in rows}
