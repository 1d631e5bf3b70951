"""Why each cell would be measured by a run now, or would not: one line per cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from ddtree.cells import BadCell, read_cell
from ddtree.models.errors import ModelError
from ddtree.nested import flat
from ddtree.plan.keys import CellId
from ddtree.plan.layout import Layout
from ddtree.plan.schema import Plan
from ddtree.plan.specs import session_spec
from ddtree.plan.state import Inputs, Status, read_manifest, server_state, to_build

SHOWN = 40  # characters of a value; longer ones, as hashes are, say nothing to a reader


def why(plan: Plan, layout: Layout, retry_failed: bool = True) -> str:
    """A line per cell in measuring order: `run` or `keep`, the cell, the reason."""
    lines = []
    for server in plan.servers:
        for cell, status, reason in _reasons(plan, server, layout):
            runs = status == "to do" or (status == "failed" and retry_failed)
            lines.append((("run" if runs else "keep"), cell.server, cell.name, reason))
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:3]]
    return "".join(
        "  ".join([*(t.ljust(w) for t, w in zip(line[:3], widths, strict=True)), line[3]]) + "\n" for line in lines
    )


def _reasons(plan: Plan, server: str, layout: Layout) -> Iterator[tuple[CellId, Status, str]]:
    missing, manifest = to_build(plan, server, layout), read_manifest(layout, server)
    inputs = Inputs(session_spec(plan, server), layout)
    for cell, status in server_state(plan, server, layout).items():
        entry = manifest.cells.get(cell.name) if manifest else None
        if status == "done":
            yield cell, status, f"measured: {layout.cell(server, cell.name)}"
        elif status == "failed" and entry and entry.reason:
            yield cell, status, f"failed before: {entry.reason.category}: {entry.reason.detail}"
        elif cell.workload in missing:
            yield cell, status, f"{_found(inputs, cell)}; to be built first: {missing[cell.workload]}"
        else:
            yield cell, status, _found(inputs, cell)


def _found(inputs: Inputs, cell: CellId) -> str:
    """What there is instead of a valid result."""
    path = inputs.layout.cell(cell.server, cell.name)
    if not path.exists():
        return "not measured yet"
    try:
        measured = read_cell(path)
    except BadCell as bad:
        return f"refused: {bad}"
    try:
        wanted = inputs.depends_on(cell)
    except (OSError, ValidationError, ModelError):
        return f"measured before: {path}"
    return f"changed since it was measured: {changes(measured.depends_on, wanted)}"


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """'server.budget 7 -> 15, prompts'."""
    old, new = dict(flat(before)), dict(flat(after))
    if not old:
        return "its file does not say what"
    return ", ".join(_change(key, old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key))


def _change(key: str, old: object, new: object) -> str:
    values = f"{old} -> {new}"
    return f"{key} {values}" if len(values) <= SHOWN else key
