"""Where a run stands: one line per finished cell, with a guess of the time left that learns as cells finish.

The Snakefile writes the run's outlook once; sessions, which may run at the same time, read it and look at the files
that have appeared since. Nothing depends on it.
"""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import BaseModel, ValidationError

from ddtree.files import write_atomically
from ddtree.plan.cost import Estimate, Row
from ddtree.plan.layout import Layout
from ddtree.plan.show import minutes

# Seconds of estimate that weigh as much as the measured time in the correction: early cells must not swing it.
PRIOR_S = 15.0


class Outlook(BaseModel):
    """What was to do when the run began."""

    started_unix: float
    total: int  # cells of the plan
    todo: dict[str, dict[str, float]]  # server -> cell name -> estimated seconds
    starts: dict[str, float]  # server -> estimated seconds of its start


def write_outlook(path: Path, rows: list[Row], guess: Estimate, retry_failed: bool) -> None:
    wanted = {"to do", "failed"} if retry_failed else {"to do"}
    todo = {
        row.server: {cell.name: guess.cells[cell] for cell, state in row.states.items() if state in wanted}
        for row in rows
    }
    total = sum(len(row.states) for row in rows)
    outlook = Outlook(started_unix=time.time(), total=total, todo=todo, starts=guess.starts)
    write_atomically(path, outlook.model_dump_json(indent=1) + "\n")


class Progress:
    """Progress of one session within the run."""

    def __init__(self, layout: Layout, server: str, todo: list[str]) -> None:
        self._layout, self._server = layout, server
        self._own = set(todo)
        self._estimated = self._spent = 0.0
        try:
            self._outlook = Outlook.model_validate_json(layout.progress.read_bytes())
        except (OSError, ValidationError):
            self._outlook = Outlook(started_unix=time.time(), total=len(todo), todo={}, starts={})
        self._guess = self._outlook.todo.get(server, {})

    def finished(self, cell: str, seconds: float) -> str:
        """Count a cell as over, well or not; returns '[ 7/44]' and 'about 3 min left' as a pair of texts."""
        self._own.discard(cell)
        self._estimated += self._guess.get(cell, seconds)
        self._spent += seconds
        others = self._elsewhere()
        left = len(self._own) + sum(len(cells) for cells in others.values())
        width = len(str(self._outlook.total))
        return f"[{max(0, self._outlook.total - left):>{width}}/{self._outlook.total}]"

    def left(self) -> str:
        """'about 3.0 min left', or 'done'."""
        others = self._elsewhere()
        ahead = sum(self._guess.get(cell, 0.0) for cell in self._own)
        ahead += sum(sum(cells.values()) for cells in others.values())
        factor = (self._spent + PRIOR_S) / (self._estimated + PRIOR_S)
        waiting = [server for server, cells in others.items() if len(cells) == len(self._outlook.todo[server])]
        seconds = ahead * factor + sum(self._outlook.starts.get(server, 0.0) for server in waiting)
        return f"about {minutes(seconds)} left" if self._own or others else "all cells measured"

    def _elsewhere(self) -> dict[str, dict[str, float]]:
        """Other servers' cells that have not appeared since the run began."""
        remaining = {}
        for server, cells in self._outlook.todo.items():
            if server == self._server or self._is_new(self._layout.manifest(server)):
                continue
            open_cells = {n: s for n, s in cells.items() if not self._is_new(self._layout.cell(server, n))}
            if open_cells:
                remaining[server] = open_cells
        return remaining

    def _is_new(self, path: Path) -> bool:
        try:
            return path.stat().st_mtime >= self._outlook.started_unix
        except OSError:
            return False
