"""Reads a plan's result files. Everything downstream works on this one object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ddtree.bench.records import Cell, Manifest, PromptSet, Record
from ddtree.cells import BadCell, read_cell
from ddtree.plan.keys import CellId, all_cells
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
    unusable: Mapping[CellId, tuple[str, str]]  # cells that a manifest calls ok and that cannot be read: (path, why)

    def category(self, workload: str, conversation: str) -> str:
        """The prompt's category; results without their prompt set fall into one."""
        conversations = self.prompts[workload][1].conversations if workload in self.prompts else []
        return next((c.category for c in conversations if c.id == conversation), "uncategorised")


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
    unusable: dict[CellId, tuple[str, str]] = {}
    for path in manifests:
        manifest = _read(path, Manifest)
        _names(path, plan, [manifest])
        by_server[manifest.server] = (str(path), manifest)
    for cell_id in all_cells(plan):
        path_text, its_manifest = by_server.get(cell_id.server, ("", None))
        status = its_manifest.cells.get(cell_id.name) if its_manifest else None
        if status is None or status.status != "ok":
            continue
        file = Path(path_text).parent.parent / "cells" / cell_id.server / f"{cell_id.name}.json"
        try:
            cell = read_cell(file)
        except BadCell as bad:
            unusable[cell_id] = (str(file), str(bad))
            continue
        if (cell.server, cell.workload, cell.concurrency) != (cell_id.server, cell_id.workload, cell_id.concurrency):
            unusable[cell_id] = (str(file), "the file holds a cell of another name")
        elif cell.key == status.key:
            cells[cell.server, cell.workload, cell.concurrency] = (str(file), cell)
        else:
            unusable[cell_id] = (str(file), "the cell is not the one that the manifest names: their keys differ")
    sets = [(str(path), _read(path, PromptSet)) for path in prompts]
    graded = [(str(path), _read(path, ServerCoding)) for path in coding]
    compared = None if lossless is None else _read(lossless, LosslessResult)
    for name, verdicts in graded:
        _names(name, plan, [verdicts, *verdicts.results])
    if compared:
        _names(lossless, plan, [*compared.agreements, *compared.divergences])
    return Results(
        plan=plan,
        manifests=by_server,
        cells=cells,
        prompts={p.workload: (path, p) for path, p in sets},
        coding={r.server: (path, r) for path, r in graded},
        unusable=unusable,
        lossless=None if compared is None else (str(lossless), compared),
    )


def _names(file: Path | str | None, plan: Plan, records: Iterable[Record]) -> None:
    """Raises BadResult for a server or workload that is not the plan's: what comes from elsewhere brings no names."""
    for record in records:
        for key, allowed in (("server", plan.servers), ("workload", [*plan.workloads, "all"])):
            if (name := getattr(record, key, None)) is not None and name not in allowed:
                raise BadResult(f"{file}: {key}: {name!r} is not in the plan {plan.plan}")


def _read(path: Path, kind: type[_R]) -> _R:
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadResult(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"]) or "the file"
        raise BadResult(f"{path}: {where}: {first['msg']} (not a {kind.__name__} of this version)") from None
