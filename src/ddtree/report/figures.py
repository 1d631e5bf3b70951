"""Which charts the report has and which table rows they show. Every point keeps the number of its row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ddtree.plan.schema import Plan
from ddtree.report import charts, heatmap, style, tables
from ddtree.report.charts import Chart, Point, Series
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
    for chart in (
        _throughput(context),
        _speedup(context),
        _concurrency(context),
        _context_length(context),
        _budget(context),
        _depth(context),
        _steps(context),
    ):
        if any(_has_points(series) for _, series in chart.panels):
            beyond = charts.write(chart, figures, data)
            if beyond:
                note = "Beyond the axis, drawn at its edge: " + ", ".join(escape(b) for b in beyond) + "."
                (data / f"{chart.name}.notes").write_text(note + "\n")
            written.append(figures / f"{chart.name}.tex")
    return [*written, *_categories(context, figures)]


def _has_points(series: Sequence[Series]) -> bool:
    return any(p.y is not None and np.isfinite(p.y) for s in series for p in s.points)


def _point(
    x: float, row: pd.Series[Any] | None, column: str, low: str = "low", high: str = "high", scale: float = 1.0
) -> Point:
    if row is None or pd.isna(row[column]):
        return Point(x, None)
    ends = [None if pd.isna(row[c]) else float(row[c]) * scale for c in (low, high)]
    return Point(x, float(row[column]) * scale, ends[0], ends[1], int(row["row"]))


def _by_workload(context: Context, table: str, column: str, **where: object) -> list[tuple[str, list[Series]]]:
    """A panel per concurrency; in each, a series per server with a point per workload."""
    panels = []
    for concurrency in context.concurrencies():
        series = [
            Series(
                context.looks[server],
                [
                    _point(
                        x, context.row(table, server=server, workload=name, concurrency=concurrency, **where), column
                    )
                    for x, name in enumerate(context.workloads())
                ],
            )
            for server in context.measured()
        ]
        panels.append((f"concurrency {concurrency}", series))
    return panels


def _throughput(context: Context) -> Chart:
    panels = []
    for title, series in _by_workload(context, "throughput", "value"):
        panels.append((title, series))
    return Chart(
        "throughput", "throughput", "output tokens/s", panels, kind="bar", ticks=list(enumerate(context.workloads()))
    )


def _speedup(context: Context) -> Chart:
    noise = context.row("noise", server="all", workload="all", metric="e2e")
    panels = _by_workload(context, "speedups", "ratio", category="all", metric="e2e", against="baseline")
    return Chart(
        "speedup",
        "speedups",
        "speed-up",
        panels,
        kind="bar",
        ticks=list(enumerate(context.workloads())),
        reference=1.0,
        band=None if noise is None else (1 / (1 + noise["floor"]), 1 + noise["floor"]),
    )


def _concurrency(context: Context) -> Chart:
    panels = []
    for name in context.workloads():
        rows = context.rows("throughput", workload=name)
        values = sorted(int(c) for c in rows["concurrency"].unique())
        if len(values) < 2:
            continue
        series = [
            Series(
                context.looks[server],
                [
                    _point(c, context.row("throughput", server=server, workload=name, concurrency=c), "value")
                    for c in values
                ],
            )
            for server in context.measured()
        ]
        panels.append((name, series))
    ticks = sorted({int(p.x) for _, series in panels for s in series for p in s.points})
    return Chart(
        "concurrency",
        "throughput",
        "output tokens/s",
        panels,
        xlabel="requests in flight",
        ticks=[(t, str(t)) for t in ticks],
        log_x=True,
        columns=2,
    )


def _context_length(context: Context) -> Chart:
    shapes = context.tables["workloads"]
    shapes = shapes[(shapes["role"] == "load") & (shapes["turns"] == 1) & shapes["input_tokens_mean"].notna()]
    lengths = sorted((float(r["input_tokens_mean"]), str(r["workload"])) for _, r in shapes.iterrows())
    first = context.concurrencies()[:1]
    if len(lengths) < 2 or not first:
        return Chart("context", "speedups", "", [])
    where = {"concurrency": first[0]}
    decode = [
        Series(
            context.looks[s],
            [
                _point(
                    x,
                    context.row(
                        "speedups", server=s, workload=w, category="all", metric="decode", against="baseline", **where
                    ),
                    "ratio",
                )
                for x, w in lengths
            ],
        )
        for s in context.measured()
    ]
    ttft = [
        Series(
            context.looks[s],
            [_point(x, _pooled(context, s, w, first[0], "ttft_s"), "value") for x, w in lengths],
        )
        for s in context.measured()
    ]
    return Chart(
        "context",
        "speedups (left), cells (right)",
        "",
        [("decoding speed-up", decode), ("time to first token (s)", ttft)],
        xlabel="prompt tokens",
        ticks=[(x, f"{x:.0f}") for x, _ in lengths],
        log_x=True,
        columns=2,
        shared_y=False,
    )


def _pooled(context: Context, server: str, workload: str, concurrency: int, metric: str) -> pd.Series[Any] | None:
    rows = context.rows("cells", server=server, workload=workload, concurrency=concurrency, metric=metric)
    rows = rows[rows["repeat"].isna()]
    return None if rows.empty else rows.iloc[0]


def _accepted(context: Context) -> pd.DataFrame:
    first = context.concurrencies()[0] if context.concurrencies() else -1
    return context.rows("acceptance", workload="all", concurrency=first)


def _budget(context: Context) -> Chart:
    rows = _accepted(context)
    rows = rows[rows["method"] != "autoregressive"]
    widths = sorted({round(float(w)) for w in rows["nodes_per_step"].dropna()})
    tau, speed = [], []
    first = context.concurrencies()[0] if context.concurrencies() else -1
    for server in context.measured():
        mine = rows[rows["server"] == server]
        if mine.empty:
            continue
        x = float(mine.iloc[0]["nodes_per_step"])
        tau.append(Series(context.looks[server], [_point(x, mine.iloc[0], "tau", "tau_low", "tau_high")]))
        ratio = context.row(
            "speedups",
            server=server,
            workload="all",
            concurrency=first,
            category="all",
            metric="decode",
            against="baseline",
        )
        speed.append(Series(context.looks[server], [_point(x, ratio, "ratio")]))
    return Chart(
        "budget",
        "acceptance (left), speedups (right)",
        "",
        [(r"tokens per verify step", tau), ("decoding speed-up", speed)],
        xlabel="rows per verify step",
        kind="scatter",
        ticks=[(w, str(w)) for w in widths],
        log_x=True,
        columns=2,
        shared_y=False,
    )


def _depth(context: Context) -> Chart:
    first = context.concurrencies()[0] if context.concurrencies() else -1
    rows = context.rows("depth", workload="all", concurrency=first, kind="verified")
    series = [
        Series(
            context.looks[server],
            [
                _point(float(r["depth"]), r, "share", "low", "high", 100)
                for _, r in rows[rows["server"] == server].iterrows()
            ],
        )
        for server in context.measured()
    ]
    deepest = int(rows["depth"].max()) if len(rows) else 1
    return Chart(
        "depth",
        "depth",
        r"share of steps (\%)",
        [("", series)],
        xlabel="accepted drafted tokens, at least",
        ticks=[(d, str(d)) for d in range(1, deepest + 1)],
    )


def _steps(context: Context) -> Chart:
    rows = _accepted(context)
    series = [
        Series(
            context.looks[server],
            [
                _point(float(r["relative_step_time"]), r, "tau", "tau_low", "tau_high")
                for _, r in rows[rows["server"] == server].iterrows()
                if pd.notna(r["relative_step_time"])
            ],
        )
        for server in context.measured()
    ]
    reach = max((p.x for s in series for p in s.points), default=1.0) * 1.15
    tallest = max((p.high or p.y or 0.0 for s in series for p in s.points), default=1.0)
    lines = []
    for slope in (0.5, 1, 1.5, 2, 3, 4, 6):
        x = min(reach, 1.08 * tallest / slope)
        lines.append(
            rf"\draw[black!30, densely dashed] (axis cs:0,0) -- (axis cs:{x:.4g},{slope * x:.4g}) "
            rf"node[pos=0.93, sloped, font=\scriptsize, text=black!60, fill=white, inner sep=1pt] {{${slope:g}\times$}};"
        )
    return Chart(
        "steps",
        "acceptance",
        "tokens per verify step",
        [("", series)],
        xlabel="time of a step, relative to one autoregressive token",
        kind="scatter",
        x_range=(0.0, reach),
        extra=lines,
    )


def _categories(context: Context, figures: Path) -> list[Path]:
    first = context.concurrencies()[0] if context.concurrencies() else -1
    rows = context.rows("speedups", concurrency=first, workload="all", metric="e2e", against="baseline")
    rows = rows[(rows["category"] != "all") & rows["ratio"].notna()]
    servers = [s for s in context.measured() if (rows["server"] == s).any()]
    categories = sorted(rows["category"].unique())
    if not servers or len(categories) < 2:
        return []
    values = np.full((len(categories), len(servers)), np.nan)
    for _, r in rows.iterrows():
        values[categories.index(r["category"]), servers.index(r["server"])] = r["ratio"]
    names = [f"{c} (n = {int(rows[rows['category'] == c]['n'].max())})" for c in categories]
    rows.to_csv(context.folder / "data" / "categories.csv", index=False)
    path = figures / "categories.pdf"
    heatmap.draw(names, servers, values, path, f"speed-up over {context.plan.baseline}")
    return [path]
