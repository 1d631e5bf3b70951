"""The job around a session: arguments, log, lock, owner, and the manifest at the end."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from ddtree import provenance
from ddtree.bench.records import Reason
from ddtree.files import remove_leftovers, write_atomically
from ddtree.lifetime import Stopped, end_with, exclusive, stop_on_signals
from ddtree.plan.keys import CellId
from ddtree.plan.layout import Layout
from ddtree.plan.specs import SessionSpec
from ddtree.plan.state import Inputs
from ddtree.progress import Progress
from ddtree.redaction import RedactingFormatter
from ddtree.session import Session, manifest, missing

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run a session, or a single cell of it; returns the exit status.

    A server that cannot start and cells that fail are results of a session: they stand in the manifest and the status
    is 0. A single cell that fails gives 1, an interruption 130.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="the session's spec file")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--owner", type=int, help="process that this session must not outlive")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--manifest", type=Path, help="measure every missing cell, then write this file")
    what.add_argument("--cell", help="measure this cell only: <workload>/c<N>")
    args = parser.parse_args(arguments)
    _log_to(args.log)
    stop_on_signals()
    try:
        if args.owner:
            end_with(args.owner)
        return _run(SessionSpec.model_validate_json(args.spec.read_bytes()), args.manifest, args.cell)
    except Stopped as stopped:
        logging.getLogger(__name__).info("stopped: %s", stopped)
        print(f"stopped ({stopped}); finished cells are kept", file=sys.stderr, flush=True)
        return INTERRUPTED
    except OSError as error:
        logging.getLogger(__name__).exception("the session failed; finished cells are kept")
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}; finished cells are kept", file=sys.stderr, flush=True)
        return 1
    except Exception:
        logging.getLogger(__name__).exception("the session failed; finished cells are kept")
        raise


def _log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _run(spec: SessionSpec, manifest_path: Path | None, only: str | None) -> int:
    layout = Layout(spec.plan)
    session = Session(spec, layout, Inputs(spec, layout), {})
    busy = f"{spec.name}: another session measures this server; waiting for it"
    with exclusive(layout.session_lock(spec.name), lambda: session.say(busy)):
        remove_leftovers(layout.cells(spec.name))
        todo = [cell for cell in spec.cell_ids() if cell.name == only] if only else missing(session)
        started, failed = time.time(), _measure(session, todo)
        if manifest_path:
            write_atomically(manifest_path, manifest(session, failed, started).model_dump_json(indent=1) + "\n")
            return 0
    return 1 if failed else 0


def _measure(session: Session, todo: list[CellId]) -> dict[str, Reason]:
    if not todo:
        return {}
    session.origin = provenance.collect(session.spec, session.layout)
    try:
        return session.run(todo, Progress(session.layout, session.spec.name, [cell.name for cell in todo]))
    finally:
        session.stop()
