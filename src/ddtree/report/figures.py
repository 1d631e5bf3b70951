"""Which charts the report has and which table rows they show. Every point keeps the number of its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ddtree.plan.keys import resolved
from ddtree.plan.schema import Plan
from ddtree.report import charts, heatmap, style, tables
from ddtree.report.charts import Chart, Panel, Point, Series
from ddtree.report.context import Context
from ddtree.report.escape import escape
from ddtree.report.macros import Macros


def write(plan: Plan, tables_dir: Path, out: Path) -> list[Path]:
    """Draws every chart that has data into out/figures and out/data; one without data is not written."""
    figures, data = out / "figures", out / "data"
    for folder in (figures, data):
        folder.mkdir(parents=True, exist_ok=True)
    for stale in [*figures.glob("*.tex"), *figures.glob("*.pdf"), *data.glob("*.csv"), *data.glob("*.notes")]:
        stale.unlink()
    context = Context(plan, tables.read(tables_dir), style.styles(plan), Macros(), out)
    written = []
    for make in (_throughput, _speedup, _concurrency, _context_length, _budget, _depth, _steps):
        chart = make(context)
        if chart.looks:
            beyond = charts.write(chart, figures, data)
            if beyond:
                note = "Beyond the axis, drawn at its edge: " + ", ".join(escape(b) for b in beyond) + "."
                (data / f"{chart.name}.notes").write_text(note + "\n")
            written.append(figures / f"{chart.name}.tex")
    return [*written, *_categories(context, figures, data)]


def _point(x: float, row: pd.Series[Any] | None, column: str, bounds: str = "", scale: float = 1.0) -> Point:
    """The value of a row with its interval, which stands in the columns `<bounds>low` and `<bounds>high`."""
    if row is None or pd.isna(row[column]):
        return Point(x, None)
    low, high = (None if pd.isna(row[bounds + c]) else float(row[bounds + c]) * scale for c in ("low", "high"))
    return Point(x, float(row[column]) * scale, low, high, int(row["row"]))


def _series(context: Context, points: Callable[[str], list[Point]]) -> list[Series]:
    return [Series(context.looks[server], points(server)) for server in context.measured()]


def _by_workload(context: Context, table: str, column: str, **where: object) -> list[Panel]:
    """A panel per concurrency; in each, a series per server with a point per workload."""

    def panel(concurrency: int) -> Panel:
        names = [w for w in context.workloads() if concurrency in (resolved(context.plan, w).concurrency or ())]
        series = _series(
            context,
            lambda server: [
                _point(x, context.row(table, server=server, workload=w, concurrency=concurrency, **where), column)
                for x, w in enumerate(names)
            ],
        )
        return Panel(f"concurrency {concurrency}", series, ticks=list(enumerate(names)))

    return [panel(c) for c in context.concurrencies()]


def _throughput(context: Context) -> Chart:
    return Chart(
        "throughput",
        _by_workload(context, "throughput", "value"),
        ylabel="output tokens/s",
        kind="bar",
        height_cm=4.1,
        shared_y=False,
    )


def _speedup(context: Context) -> Chart:
    noise = context.row("noise", server="all", workload="all", metric="e2e")
    return Chart(
        "speedup",
        _by_workload(context, "speedups", "ratio", category="all", metric="e2e", against="baseline"),
        ylabel="speed-up",
        kind="bar",
        height_cm=4.1,
        reference=1.0,
        band=None if noise is None else (1 / (1 + noise["floor"]), 1 + noise["floor"]),
    )


def _concurrency(context: Context) -> Chart:
    panels = []
    for name in context.workloads():
        values = sorted(int(c) for c in context.rows("throughput", workload=name)["concurrency"].unique())
        if len(values) < 2:
            continue
        points = [
            Series(
                context.looks[server],
                [
                    _point(c, context.row("throughput", server=server, workload=name, concurrency=c), "value")
                    for c in values
                ],
            )
            for server in context.measured()
        ]
        panels.append(Panel(name, points, ticks=[(c, str(c)) for c in values]))
    return Chart(
        "concurrency",
        panels,
        xlabel="requests in flight",
        ylabel="output tokens/s",
        log_x=True,
        columns=2,
        shared_y=False,
    )


def _context_length(context: Context) -> Chart:
    shapes = context.rows("workloads", role="load", turns=1).dropna(subset=["input_tokens_mean"])
    lengths = sorted((float(r["input_tokens_mean"]), str(r["workload"])) for _, r in shapes.iterrows())
    first = context.first_concurrency()
    if len(lengths) < 2:
        return Chart("context", [])

    def points(table: str, column: str, **where: object) -> list[Series]:
        return _series(
            context,
            lambda server: [
                _point(x, context.row(table, server=server, workload=w, concurrency=first, **where), column)
                for x, w in lengths
            ],
        )

    ticks = _apart([x for x, _ in lengths])
    faster = points("speedups", "ratio", category="all", metric="decode", against="baseline")
    first_token = points("pooled", "value", metric="ttft_s")
    return Chart(
        "context",
        [Panel("decoding speed-up", faster, ticks=ticks), Panel("time to first token (s)", first_token, ticks=ticks)],
        xlabel="prompt tokens",
        log_x=True,
        columns=2,
        shared_y=False,
    )


def _apart(lengths: Sequence[float]) -> list[tuple[float, str]]:
    """Ticks for increasing lengths on a logarithmic axis, without those whose label would run into the one before."""
    closest = (lengths[-1] / lengths[0]) ** (1 / 7)
    kept: list[float] = []
    for x in lengths:
        if not kept or x >= closest * kept[-1]:
            kept.append(x)
    return [(x, f"{x:.0f}") for x in kept]


def _budget(context: Context) -> Chart:
    first = context.first_concurrency()
    rows = context.rows("acceptance", workload="all", concurrency=first)
    rows = rows[rows["method"] != "autoregressive"]
    width = {str(r["server"]): float(r["nodes_per_step"]) for _, r in rows.iterrows()}
    where: dict[str, object] = {"workload": "all", "concurrency": first}
    ratio: dict[str, object] = {**where, "category": "all", "metric": "decode", "against": "baseline"}

    def points(table: str, column: str, bounds: str, chosen: dict[str, object]) -> list[Series]:
        return _series(
            context,
            lambda server: (
                [_point(width[server], context.row(table, server=server, **chosen), column, bounds)]
                if server in width
                else []
            ),
        )

    accepted = points("acceptance", "tau", "tau_", where)
    faster = points("speedups", "ratio", "", ratio)
    ticks = [(float(w), str(w)) for w in sorted({round(w) for w in width.values()})]
    return Chart(
        "budget",
        [
            Panel("tokens per verify step", accepted, _joined(accepted), ticks),
            Panel("decoding speed-up", faster, _joined(faster), ticks),
        ],
        xlabel="rows per verify step",
        kind="scatter",
        log_x=True,
        columns=2,
        shared_y=False,
    )


def _joined(series: Sequence[Series]) -> list[str]:
    """A line through the trees, in order of width."""
    trees = sorted((p.x, p.y) for s in series if s.look.method == "ddtree" for p in s.points if p.y is not None)
    path = " -- ".join(f"(axis cs:{x:.5g},{y:.5g})" for x, y in trees)
    return [rf"\draw[black!35] {path};"] if len(trees) > 1 else []


def _depth(context: Context) -> Chart:
    rows = context.rows("depth", workload="all", concurrency=context.first_concurrency(), kind="verified")
    deepest = int(rows["depth"].max()) if len(rows) else 1
    series = _series(
        context,
        lambda s: [_point(float(r["depth"]), r, "share", scale=100) for _, r in rows[rows["server"] == s].iterrows()],
    )
    return Chart(
        "depth",
        [Panel("", series, ticks=[(d, str(d)) for d in range(1, deepest + 1)])],
        xlabel="accepted drafted tokens, at least",
        ylabel=r"share of steps (\%)",
    )


def _steps(context: Context) -> Chart:
    rows = context.rows("acceptance", workload="all", concurrency=context.first_concurrency())
    rows = rows.dropna(subset=["relative_step_time"])
    series = _series(
        context,
        lambda server: [
            _point(float(r["relative_step_time"]), r, "tau", "tau_")
            for _, r in rows[rows["server"] == server].iterrows()
        ],
    )
    points = [p for s in series for p in s.points if p.y is not None]
    reach = max((p.x for p in points), default=1.0) * 1.12
    tallest = max((p.high or p.y or 0.0 for p in points), default=1.0)
    lines = []
    for slope in (0.5, 1, 1.5, 2, 3, 4, 6):
        x = min(reach, tallest / slope)
        lines.append(
            rf"\draw[black!30, densely dashed] (axis cs:0,0) -- (axis cs:{x:.4g},{slope * x:.4g}) node[pos=0.9, sloped,"
            rf" font=\scriptsize, text=black!60, fill=white, inner sep=1pt] {{${slope:g}\times$}};"
        )
    return Chart(
        "steps",
        [Panel("", series, lines)],
        xlabel="time of a step, relative to one autoregressive token",
        ylabel="tokens per verify step",
        kind="scatter",
        height_cm=6.4,
        x_range=(0.0, reach),
    )


def _categories(context: Context, figures: Path, data: Path) -> list[Path]:
    rows = context.rows(
        "speedups", concurrency=context.first_concurrency(), workload="all", metric="e2e", against="baseline"
    )
    rows = rows[(rows["category"] != "all") & rows["ratio"].notna()]
    servers = [s for s in context.measured() if (rows["server"] == s).any()]
    categories = sorted(rows["category"].unique())
    if not servers or len(categories) < 2:
        return []
    values = np.full((len(categories), len(servers)), np.nan)
    for _, r in rows.iterrows():
        values[categories.index(r["category"]), servers.index(r["server"])] = r["ratio"]
    names = [f"{c} (n = {int(rows[rows['category'] == c]['n'].max())})" for c in categories]
    rows.to_csv(data / "categories.csv", index=False)
    path = figures / "categories.pdf"
    heatmap.draw(names, servers, values, path, "speed-up")
    return [path]
