"""Reads a plan's result files. Everything downstream works on this one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ddtree.bench.records import Cell, Manifest, PromptSet, Record
from ddtree.plan.schema import Plan
from ddtree.quality.results import LosslessResult, ServerCoding

_R = TypeVar("_R", bound=Record)


class BadResult(Exception):
    """A result file that cannot be used: one line with its path and what is wrong."""


@dataclass(frozen=True)
class Results:
    plan: Plan
    manifests: Mapping[str, tuple[str, Manifest]]  # server -> (path, manifest)
    cells: Mapping[tuple[str, str, int], tuple[str, Cell]]  # (server, workload, concurrency) -> (path, cell)
    prompts: Mapping[str, tuple[str, PromptSet]]  # workload -> (path, prompts)
    coding: Mapping[str, tuple[str, ServerCoding]]  # server -> (path, result)
    lossless: tuple[str, LosslessResult] | None

    def category(self, workload: str, conversation: str) -> str:
        """The prompt's category; results without their prompt set fall into one."""
        conversations = self.prompts[workload][1].conversations if workload in self.prompts else []
        return next((c.category for c in conversations if c.id == conversation), "uncategorised")

    def planned_cells(self) -> list[tuple[str, str, int]]:
        """Every (server, workload, concurrency) that the plan asks for."""
        return [
            (server, name, concurrency)
            for server in self.plan.servers
            for name, workload in self.plan.workloads.items()
            for concurrency in workload.concurrency or self.plan.concurrency
        ]


def load(
    plan: Plan,
    manifests: Sequence[Path],
    prompts: Sequence[Path] = (),
    coding: Sequence[Path] = (),
    lossless: Path | None = None,
) -> Results:
    """Reads the manifests and the cells that they call ok, which lie in ../cells/<server>/ beside them."""
    by_server: dict[str, tuple[str, Manifest]] = {}
    cells: dict[tuple[str, str, int], tuple[str, Cell]] = {}
    for path in manifests:
        manifest = _read(path, Manifest)
        if manifest.server not in plan.servers:
            continue
        by_server[manifest.server] = (str(path), manifest)
        for name, status in manifest.cells.items():
            if status.status == "ok":
                file = path.parent.parent / "cells" / manifest.server / f"{name}.json"
                cell = _read(file, Cell)
                cells[(cell.server, cell.workload, cell.concurrency)] = (str(file), cell)
    sets = [(str(path), _read(path, PromptSet)) for path in prompts]
    return Results(
        plan=plan,
        manifests=by_server,
        cells=cells,
        prompts={p.workload: (path, p) for path, p in sets},
        coding={r.server: (path, r) for path, r in ((str(p), _read(p, ServerCoding)) for p in coding)},
        lossless=None if lossless is None else (str(lossless), _read(lossless, LosslessResult)),
    )


def _read(path: Path, kind: type[_R]) -> _R:
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadResult(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"]) or "the file"
        raise BadResult(f"{path}: {where}: {first['msg']} (not a {kind.__name__} of this version)") from None
