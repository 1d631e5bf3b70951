"""The command line that starts each engine, and the settings that it must then report back."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ddtree.plan.schema import METHOD_KEYS, Server

# Job schedulers set these for their own jobs; a server's threads are what the plan says.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SHARED_SETTINGS = ("method", "device", "dtype", "max_running_requests", "context_length")


class Files(Protocol):
    """The part of ddtree.models.ModelFiles that a server needs."""

    @property
    def target(self) -> str | Path: ...
    @property
    def drafter(self) -> str | Path | None: ...


@dataclass(frozen=True)
class Command:
    argv: list[str]
    asked: dict[str, object]  # what /server_info must say, by its own keys


def embedded(name: str, server: Server, files: Files, python: Path, port: int) -> Command:
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


ENGINES: dict[str, Callable[[str, Server, Files, Path, int], Command]] = {"embedded": embedded}


def command(name: str, server: Server, files: Files, python: Path, port: int) -> Command:
    """ValueError, one line, for what cannot be started."""
    if server.engine not in ENGINES:
        raise ValueError(f"server {name}: engine {server.engine} cannot be started yet; allowed: {', '.join(ENGINES)}")
    return ENGINES[server.engine](name, server, files, python, port)


def environment(nonce: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """This process's environment with the server's identity, its GPUs, and nobody else's thread counts."""
    kept = {key: value for key, value in os.environ.items() if key not in THREAD_VARIABLES}
    return kept | {"DDTREE_NONCE": nonce, "CUDA_VISIBLE_DEVICES": ",".join(gpus), "PYTHONUNBUFFERED": "1"}


def _flags(settings: dict[str, object]) -> list[str]:
    flags: list[str] = []
    for key, value in settings.items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags += [flag, str(value)]
    return flags
