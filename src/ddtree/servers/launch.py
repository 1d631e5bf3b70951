"""The command line that starts each engine, and the settings that it must then report back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ddtree.plan.schema import METHOD_KEYS, Server
from ddtree.redaction import without_secrets
from ddtree.servers import identity, sglang, sglang_info
from ddtree.servers.command import Command, Files

# Job schedulers set these for their own jobs; a server's threads are what the plan says.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SHARED_SETTINGS = ("method", "device", "dtype", "max_running_requests", "context_length")


@dataclass(frozen=True)
class Engine:
    command: Callable[[str, Server, Files, Path, int, str], Command]
    dialect: identity.Dialect
    ports: int  # consecutive ones that a server needs; HTTP is the first


def embedded(name: str, server: Server, files: Files, python: Path, port: int, nonce: str) -> Command:
    """`python -m ddtree.engine`; None in `asked` means that the setting must be off."""
    asked: dict[str, object] = {key: getattr(server, key) for key in SHARED_SETTINGS}
    asked["port"] = port
    asked["served_model_name"] = name
    asked["target"] = str(Path(files.target).resolve())
    asked["threads"] = server.threads or len(os.sched_getaffinity(0))
    if server.needs_drafter:
        if files.drafter is None:
            raise ValueError(f"server {name}: method {server.method} needs a drafter, model {server.model} has none")
        asked["drafter"] = str(Path(files.drafter).resolve())
    for key, methods in METHOD_KEYS.items():
        value = getattr(server, key)
        # Unset keys take the engine's default, but no window and no shadow mode are settings of their own.
        if server.method in methods and (value is not None or key == "draft_window"):
            asked[key] = value
    return Command([str(python), "-m", "ddtree.engine", *_flags(asked)], asked)


ENGINES = {
    "embedded": Engine(embedded, identity.EMBEDDED, 1),
    "sglang": Engine(sglang.command, sglang_info.DIALECT, sglang.PORTS),
}


def command(name: str, server: Server, files: Files, python: Path, port: int, nonce: str = "") -> Command:
    """`port` is the first of the engine's. ValueError or ServerFailed, one line, for what cannot be started."""
    return ENGINES[server.engine].command(name, server, files, python, port, nonce)


def environment(nonce: str, gpus: tuple[str, ...], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with the server's `own` variables, its identity, its GPUs, and nobody else's thread
    counts or secrets: a server may print what it is given."""
    kept = {key: value for key, value in without_secrets(os.environ).items() if key not in THREAD_VARIABLES}
    # GPUs are numbered as nvidia-smi does, which CUDA by itself does not.
    kept |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1", **(own or {})}
    return kept | {"DDTREE_NONCE": nonce, "CUDA_VISIBLE_DEVICES": ",".join(gpus)}


def _flags(settings: dict[str, object]) -> list[str]:
    flags: list[str] = []
    for key, value in settings.items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags += [flag, str(value)]
    return flags
