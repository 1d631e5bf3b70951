"""What the Snakefile needs beside its rules: the plan it runs, the spec files of its jobs, the last word."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ddtree.plan.cost import estimate, overview
from ddtree.plan.layout import Layout
from ddtree.plan.load import load
from ddtree.plan.schema import Plan
from ddtree.plan.specs import session_spec, write_inputs, write_session
from ddtree.plan.state import manifest_is_true, read_manifest
from ddtree.progress import write_outlook

DEFAULT_PLAN = Path("config/ddtree.yaml")


def configure(files: Sequence[Path], command_line: Mapping[str, object]) -> tuple[Plan, bool]:
    """The plan of `--configfile` (default: config/ddtree.yaml) under `--config`, and whether failed cells are retried.

    Raises PlanError.
    """
    overrides = dict(command_line)
    retry_failed = bool(overrides.pop("retry_failed", False))
    return load([_short(path) for path in files] or [DEFAULT_PLAN], overrides), retry_failed


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def write_specs(plan: Plan, layout: Layout, retry_failed: bool) -> None:
    """Bring every spec file up to date and request the sessions whose manifest is missing or untrue."""
    write_inputs(plan, layout)
    guess = estimate(plan, layout)
    rows = overview(plan, layout, retry_failed, guess)
    for row in rows:
        true = manifest_is_true(plan, row.server, layout, row.states)
        again = retry_failed and row.count("failed") > 0
        request = None if true and not again else time.time()
        write_session(session_spec(plan, row.server), layout.session_spec(row.server), request)
    write_outlook(layout.progress, rows, guess, retry_failed)


def one_of(names: Iterable[str]) -> str:
    """Regular expression that matches exactly these names."""
    return "|".join(re.escape(name) for name in names)


def sources(*packages: str) -> list[str]:
    """The Python and template files of these subpackages: inputs of rules that are cheap to run again."""
    root = Path(__file__).parents[1]
    files = (path for package in packages for path in (root / package).rglob("*") if path.is_file())
    return sorted(str(path) for path in files if "__pycache__" not in path.parts)


def farewell(plan: Plan, layout: Layout) -> str:
    """One line per server with failed cells, for the end of a run; empty when all went well."""
    lines = []
    for server in plan.servers:
        manifest = read_manifest(layout, server)
        failed = [cell for cell in manifest.cells.values() if cell.reason] if manifest else []
        if failed and failed[0].reason:
            reason = failed[0].reason
            lines.append(f"{server}: {len(failed)} cells failed, e.g. {reason.category}: {reason.detail}")
    if lines:
        lines.append("The report shows them. To try them again: snakemake --config retry_failed=1")
    return "".join(f"{line}\n" for line in lines)
