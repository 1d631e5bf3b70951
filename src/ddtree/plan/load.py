"""From plan files to a checked Plan, or to one line per mistake before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from ddtree.plan.checks import check
from ddtree.plan.errors import Loc, describe, dotted
from ddtree.plan.files import Origin, PlanError, merge, read_yaml
from ddtree.plan.schema import Plan


def load(
    files: Sequence[Path | str],
    overrides: Mapping[str, object] | None = None,
    root: Path | None = None,
) -> Plan:
    """Read, merge and check `files` (later ones on top) and `overrides` (from the command line, on top of all).

    Relative paths in the plan start at `root` (default: the working directory). Raises PlanError.
    """
    layers: list[tuple[str, Mapping[str, object]]] = [(str(path), read_yaml(Path(path))) for path in files]
    if overrides:
        layers.append(("--config", overrides))
    merged: dict[str, object] = {}
    for _, data in layers:
        merged = merge(merged, data)
    raw = _with_server_defaults(merged)
    origin = Origin(layers)
    try:
        plan = Plan.model_validate(raw)
    except ValidationError as invalid:
        lines = []
        for error in invalid.errors():
            written = _written(error["loc"], merged)
            lines.append(f"{origin.of(written)}: {describe(error, written)}")
        raise PlanError(*dict.fromkeys(lines)) from None
    findings = check(plan, root or Path.cwd())
    if findings:
        raise PlanError(*(f"{origin.of(loc)}: {dotted(loc)}: {text}" for loc, text in findings))
    return plan


def _with_server_defaults(raw: Mapping[str, object]) -> dict[str, object]:
    """Every server on top of `server_defaults`; wrong shapes are left for the schema to name."""
    defaults, servers = raw.get("server_defaults"), raw.get("servers")
    if not isinstance(defaults, Mapping) or not isinstance(servers, Mapping):
        return dict(raw)
    full = {name: {**defaults, **own} if isinstance(own, Mapping) else own for name, own in servers.items()}
    return {**raw, "servers": full}


def _written(loc: Loc, raw: Mapping[str, object]) -> Loc:
    """The key that was written: servers.<name>.<key> may stand in server_defaults only."""
    if len(loc) < 3 or loc[0] != "servers":
        return loc
    servers, defaults = raw.get("servers"), raw.get("server_defaults")
    own = servers.get(loc[1]) if isinstance(servers, Mapping) else None
    if isinstance(own, Mapping) and loc[2] not in own and isinstance(defaults, Mapping) and loc[2] in defaults:
        return ("server_defaults", *loc[2:])
    return loc
