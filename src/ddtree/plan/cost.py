"""How long a plan will take, before it runs: tokens times stated rates, corrected by what was measured already.

The defaults are one small model (135M parameters, two CPU cores) and one large one (tens of billions, one GPU); they
only set the scale of a first estimate. Once a plan has results, each measured cell stands for itself and the others
are scaled by the median ratio of measured to estimated time.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass

from ddtree.bench.arrivals import offsets
from ddtree.plan.keys import CellId, all_cells, resolved
from ddtree.plan.layout import Layout
from ddtree.plan.schema import Plan
from ddtree.plan.state import Status, read_manifest, server_state


@dataclass(frozen=True)
class Rates:
    token_s: dict[str, float]  # seconds per output token of one request, by method
    prefill: float  # prompt tokens per second
    scaling: float  # c requests at once are c**scaling times as fast as one after the other
    start_s: float


RATES = {
    "cpu": Rates({"autoregressive": 0.035, "prompt_lookup": 0.030, "dflash": 0.025, "ddtree": 0.022}, 500.0, 0.35, 6.0),
    "cuda": Rates(
        {"autoregressive": 0.012, "prompt_lookup": 0.010, "dflash": 0.004, "ddtree": 0.004}, 8000.0, 0.8, 180.0
    ),
}
PROMPT_TOKENS = 120  # of a workload that does not fix them
CELL_OVERHEAD_S = 1.5  # warm-up, flush, checks, writing


@dataclass(frozen=True)
class Estimate:
    """Seconds of each cell and of each server's start, and how many cells they were calibrated on."""

    cells: dict[CellId, float]
    starts: dict[str, float]
    measured: int


def stated(plan: Plan, cell: CellId) -> float:
    """Seconds for one cell by the stated rates alone."""
    server, workload = plan.servers[cell.server], resolved(plan, cell.workload)
    rates = RATES[server.device]
    first = workload.prompt_tokens or PROMPT_TOKENS
    # Every turn sends the conversation so far again.
    prompt_tokens = sum(first + turn * (workload.max_new_tokens + PROMPT_TOKENS) for turn in range(workload.turns))
    one = prompt_tokens / rates.prefill + workload.turns * workload.max_new_tokens * rates.token_s[server.method]
    at_once = min(cell.concurrency, workload.prompts)
    scoring = prompt_tokens / rates.prefill if workload.audit and cell.server == plan.baseline else 0.0
    runs = workload.repeats or 1
    loaded = workload.prompts * one / at_once**rates.scaling
    if workload.arrivals:
        loaded = max(loaded, offsets(workload.arrivals, workload.prompts)[-1])
    return CELL_OVERHEAD_S + runs * loaded + workload.prompts * scoring


def estimate(plan: Plan, layout: Layout) -> Estimate:
    """Best guess for every cell and start of the plan."""
    guess = {cell: stated(plan, cell) for cell in all_cells(plan)}
    measured = {cell: s for cell in guess if (s := _measured_seconds(layout, cell)) is not None}
    factor = statistics.median(s / guess[cell] for cell, s in measured.items()) if measured else 1.0
    seconds = {cell: measured.get(cell, guess[cell] * factor) for cell in guess}
    starts = {server: _start_seconds(plan, server, layout) for server in plan.servers}
    return Estimate(seconds, starts, len(measured))


def _measured_seconds(layout: Layout, cell: CellId) -> float | None:
    try:
        seconds = json.loads(layout.cell(cell.server, cell.name).read_bytes())["seconds"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(seconds) if isinstance(seconds, (int, float)) else None


def _start_seconds(plan: Plan, server: str, layout: Layout) -> float:
    manifest = read_manifest(layout, server)
    ready = [start.seconds for start in manifest.starts if start.ready] if manifest else []
    return ready[-1] if ready else RATES[plan.servers[server].device].start_s


@dataclass(frozen=True)
class Row:
    """One server's line of the overview. `seconds` counts what is still to do, its start included."""

    server: str
    method: str
    states: dict[CellId, Status]
    seconds: float

    def count(self, status: Status) -> int:
        return sum(state == status for state in self.states.values())


def overview(plan: Plan, layout: Layout, retry_failed: bool, guess: Estimate) -> list[Row]:
    """A row per server, in the plan's order."""
    rows = []
    for server, spec in plan.servers.items():
        states = server_state(plan, server, layout)
        wanted: set[Status] = {"to do", "failed"} if retry_failed else {"to do"}
        todo = [guess.cells[cell] for cell, state in states.items() if state in wanted]
        rows.append(Row(server, spec.method, states, sum(todo) + (guess.starts[server] if todo else 0.0)))
    return rows
