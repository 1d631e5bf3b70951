"""The plan as text, for a person who wants to know what `snakemake` is about to do."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree.plan.cost import Estimate, Row, estimate, overview
from ddtree.plan.layout import Layout
from ddtree.plan.schema import Plan
from ddtree.plan.specs import used_models


def minutes(seconds: float) -> str:
    """'40 s', '3.5 min', '2 h 05 min'."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours} h {rest:02d} min"


def show(plan: Plan, layout: Layout, retry_failed: bool = True) -> str:
    """What will be built, started and measured, and how long that should take."""
    guess = estimate(plan, layout)
    rows = overview(plan, layout, retry_failed, guess)
    return "\n".join([f"Plan {plan.plan}: {plan.title}", "", *_to_build(plan, layout), *_table(rows, guess), ""])


def _to_build(plan: Plan, layout: Layout) -> list[str]:
    engines = dict.fromkeys(server.env for server in plan.servers.values() if not server.python)
    models = used_models(plan)
    missing = [f"environment {name} (.envs/{name})" for name in engines if not layout.env(name).exists()]
    missing += [f"model {name} (models/{name})" for name in models if not layout.model(name).exists()]
    sets = [(model, load) for model in models for load in plan.workloads]
    absent = sum(not layout.prompts(model, load).exists() for model, load in sets)
    if absent:
        missing.append(f"{absent} prompt set{'s' * (absent > 1)}")
    return [f"To build first: {', '.join(missing)}", ""] if missing else []


def _table(rows: Sequence[Row], guess: Estimate) -> list[str]:
    header = ("server", "method", "cells", "done", "to do", "failed", "time left")
    body = [
        (
            row.server,
            row.method,
            str(len(row.states)),
            str(row.count("done")),
            str(row.count("to do")),
            str(row.count("failed")),
            minutes(row.seconds) if row.seconds else "-",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    lines = [_line(header, widths), _line(["-" * width for width in widths], widths)]
    lines += [_line(line, widths) for line in body]
    return [*lines, "", *_summary(rows, guess)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = [text.ljust(width) for text, width in zip(cells[:2], widths[:2], strict=True)]
    right = [text.rjust(width) for text, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join(left + right).rstrip()


def _summary(rows: Sequence[Row], guess: Estimate) -> list[str]:
    total = sum(len(row.states) for row in rows)
    done, failed = sum(row.count("done") for row in rows), sum(row.count("failed") for row in rows)
    starts, seconds = sum(row.seconds > 0 for row in rows), sum(row.seconds for row in rows)
    basis = f"scaled by {guess.measured} measured cells" if guess.measured else "from stated rates, no result yet"
    lines = [
        f"A cell is one workload at one concurrency on one server: {total} cells, {done} done, "
        f"{total - done - failed} to do, {failed} failed."
    ]
    if seconds:
        lines.append(f"{starts} server start{'s' * (starts != 1)} and about {minutes(seconds)} of measuring ({basis}).")
    else:
        lines.append("Nothing is left to measure.")
    if failed and not seconds:
        lines.append("Failed cells are taken as results: retry_failed is 0.")
    return lines
