"""What the Snakefile needs beside its rules: the plan it runs, the spec files of its jobs, the last word."""

from __future__ import annotations

import fcntl
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from pydantic import BaseModel, ValidationError

from ddtree.plan.cost import estimate, overview
from ddtree.plan.files import PlanError
from ddtree.plan.layout import Layout
from ddtree.plan.load import load
from ddtree.plan.schema import Plan
from ddtree.plan.specs import session_spec, write_inputs, write_session
from ddtree.plan.state import manifest_is_true, read_manifest
from ddtree.progress import write_outlook

_held: TextIO | None = None  # keeps the lock's file open
_earlier: dict[Path, int] = {}  # manifests as they were when the run began, with their times
DEFAULT_PLAN = Path("config/ddtree.yaml")


class Options(BaseModel):
    """What `--config` says about this run rather than about the plan."""

    retry_failed: bool = True  # measure again what failed in an earlier run; false: take the failures as results
    allow_unisolated: bool = False  # run generated code even where a sandbox cannot cut it off from the network


def configure(files: Sequence[Path], command_line: Mapping[str, object]) -> tuple[Plan, Options]:
    """The plan of `--configfile` (default: config/ddtree.yaml) under the plan's keys in `--config`, and the options.

    Raises PlanError.
    """
    given = {key: value for key, value in command_line.items() if key in Options.model_fields}
    try:
        options = Options.model_validate(given)
    except ValidationError as error:
        wrong = (f"--config: {e['loc'][0]}: {e['input']!r} is not allowed; allowed: 0, 1" for e in error.errors())
        raise PlanError(*wrong) from None
    overrides = {key: value for key, value in command_line.items() if key not in given}
    return load([_short(path) for path in files] or [DEFAULT_PLAN], overrides), options


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def write_specs(plan: Plan, layout: Layout, retry_failed: bool) -> dict[str, float]:
    """Bring every spec file up to date and request the sessions whose manifest is missing or untrue; returns the
    seconds that each server is expected to take.

    Exits with one line when the disk is full or a folder cannot be written.
    """
    try:
        return _write_specs(plan, layout, retry_failed)
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")


def _write_specs(plan: Plan, layout: Layout, retry_failed: bool) -> dict[str, float]:
    write_inputs(plan, layout)
    guess = estimate(plan, layout)
    rows = overview(plan, layout, retry_failed, guess)
    for row in rows:
        true = manifest_is_true(plan, row.server, layout, row.states)
        again = retry_failed and row.count("failed") > 0
        request = None if true and not again else time.time()
        write_session(session_spec(plan, row.server), layout.session_spec(row.server), request)
    write_outlook(layout.progress, rows, guess, retry_failed)
    return {row.server: row.seconds for row in rows}


def hold(layout: Layout) -> None:
    """Claim the folder for this run; the kernel gives it back when the process ends, however it ends.

    Exits with one line when another run holds it.
    """
    global _held
    path = layout.root / "run" / "snakemake.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    _earlier.update((file, file.stat().st_mtime_ns) for file in (layout.results / "sessions").glob("*.json"))
    _held = path.open("a")
    try:
        fcntl.flock(_held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{path}: another run is working in this folder; let it finish, or stop it with Ctrl-C")


def one_of(names: Iterable[str]) -> str:
    """Regular expression that matches exactly these names."""
    return "|".join(re.escape(name) for name in names)


def sources(*packages: str) -> list[str]:
    """The Python and template files of these subpackages: inputs of rules that are cheap to run again."""
    root = Path(__file__).parents[1]
    files = (path for package in packages for path in (root / package).rglob("*") if path.is_file())
    return sorted(str(path) for path in files if "__pycache__" not in path.parts)


def farewell(plan: Plan, layout: Layout) -> str:
    """A line per server some of whose cells failed in this run, and what to do; empty when all went well."""
    lines = []
    for server in plan.servers:
        path, manifest = layout.manifest(server), read_manifest(layout, server)
        if manifest is None or path.stat().st_mtime_ns == _earlier.get(path):
            continue
        reasons = [cell.reason for cell in manifest.cells.values() if cell.reason]
        if reasons:
            first = f"{reasons[0].category}: {reasons[0].detail}"
            lines.append(f"{server}: {len(reasons)} of {len(manifest.cells)} cells failed, e.g. {first}")
    advice = "The report shows them. The next run tries them again, except with --config retry_failed=0"
    return "\n".join([*lines, advice]) if lines else ""
