"""pgfplots charts: a data file per chart next to a small .tex that draws it. Missing values are gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ddtree.report.escape import escape
from ddtree.report.style import ServerStyle

MAX_MARKS = 2000  # per chart; pdflatex runs out of memory far above
NARROW = 1.3  # ratio of the ends of a logarithmic axis
PAGE_CM = 20.5  # height that all panels together may have, so that legend and caption still fit


@dataclass(frozen=True)
class Point:
    """`row` is the number of the row in `tables/<table>.csv` that the value comes from."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None
    row: int | None = None


@dataclass(frozen=True)
class Series:
    look: ServerStyle
    points: Sequence[Point]


@dataclass(frozen=True)
class Panel:
    title: str
    series: Sequence[Series]
    extra: Sequence[str] = ()  # LaTeX drawn beneath the data
    ticks: Sequence[tuple[float, str]] = ()  # x ticks by name


@dataclass(frozen=True)
class Chart:
    """Panels of one kind with one legend."""

    name: str
    panels: Sequence[Panel]
    xlabel: str = ""
    ylabel: str = ""
    kind: Literal["line", "bar", "scatter"] = "line"
    log_x: bool = False
    reference: float | None = None  # a horizontal line, e.g. speed-up 1
    band: tuple[float, float] | None = None  # a grey band, e.g. the noise floor
    columns: int = 1  # panels beside each other
    height_cm: float = 4.6
    shared_y: bool = True  # one scale for all panels
    x_range: tuple[float, float] | None = None

    @property
    def looks(self) -> list[ServerStyle]:
        """Of every server with a value in some panel."""
        found = {s.look.server: s.look for panel in self.panels for s in panel.series if any(map(_known, s.points))}
        return sorted(found.values(), key=lambda look: look.rank)


def write(chart: Chart, figures: Path, data: Path) -> list[str]:
    """Writes figures/<name>.tex and data/<name>-<panel>.csv; returns `server: value` for each value beyond the axis."""
    beyond: list[str] = []
    body = []
    for i, panel in enumerate(chart.panels):
        top = _top(chart, chart.panels if chart.shared_y else [panel])
        limit = MAX_MARKS // max(1, len(chart.panels) * len(chart.looks))
        series = [Series(s.look, _thin(s.points, limit)) for s in panel.series if s.look in chart.looks]
        beyond += _write_data(data / f"{chart.name}-{i}.csv", series, top)
        body.append(_axis(chart, i, series, top))
    (figures / f"{chart.name}.tex").write_text("\n".join([_HEADER, *body, _legend(chart), ""]))
    return beyond


_HEADER = "% Drawn from the data file named in each table command; its column `row` is the row of the table it cites."


def _known(point: Point) -> bool:
    return point.y is not None and math.isfinite(point.y)


def _top(chart: Chart, panels: Sequence[Panel]) -> float:
    """Upper end of the y axis. One far outlier must not flatten the rest, so it is robust."""
    points = [p for panel in panels for s in panel.series for p in s.points if _known(p)]
    values = sorted(float(p.y) for p in points if p.y is not None)
    if not values or values[-1] <= 0:
        return 1.0
    typical = max(values[int(0.75 * (len(values) - 1))], chart.reference or 0.0)
    reach = max([v for v in values if v <= 4 * typical] or values)
    whiskers = [p.high for p in points if p.high is not None and math.isfinite(p.high) and p.high <= 1.6 * reach]
    return 1.08 * max([reach, *whiskers, chart.reference or 0.0, *(chart.band or ())])


def _thin(points: Sequence[Point], limit: int) -> Sequence[Point]:
    step = math.ceil(len(points) / limit)
    return points[::step] if step > 1 else points


def _write_data(file: Path, series: Sequence[Series], top: float) -> list[str]:
    notes = []
    lines = ["server,series,x,y,minus,plus,value,row"]
    for i, s in enumerate(series):
        for p in s.points:
            known = _known(p)
            y = min(float(p.y), top) if known and p.y is not None else math.nan
            if known and p.y is not None and p.y > top:
                notes.append(f"{s.look.server}: {p.y:.3g}")
            low = y if p.low is None or not math.isfinite(p.low) else min(p.low, y)
            high = y if p.high is None or not math.isfinite(p.high) else min(max(p.high, y), top)
            row = "" if p.row is None else str(p.row)
            value = math.nan if p.y is None else p.y
            lines.append(f"{s.look.server},{i},{p.x:.6g},{y:.6g},{y - low:.6g},{high - y:.6g},{value:.6g},{row}")
    file.write_text("\n".join(lines) + "\n")
    return notes


def _axis(chart: Chart, panel: int, series: Sequence[Series], top: float) -> str:
    width = {1: 15.4, 2: 7.6}[chart.columns]
    height = min(chart.height_cm, PAGE_CM / math.ceil(len(chart.panels) / chart.columns))
    starts_row = panel % chart.columns == 0
    ends_row = panel % chart.columns == chart.columns - 1 or panel == len(chart.panels) - 1
    ticks = chart.panels[panel].ticks
    groups = max(1, max(len(p.ticks) for p in chart.panels))
    bar_cm = min(0.5, 0.8 * (width - 1.6) / groups / max(1, len(chart.looks)))
    options = [
        "ddtree axis",
        f"width={width}cm, height={height:.2f}cm",
        f"ymin=0, ymax={top:.4g}",
        f"title={{{escape(chart.panels[panel].title)}}}",
        f"ylabel={{{chart.ylabel if starts_row else ''}}}",
        f"xlabel={{{chart.xlabel}}}",
    ]
    if ticks:
        options.append("xtick={" + ",".join(f"{x:g}" for x, _ in ticks) + "}")
        options.append("xticklabels={" + ",".join("{" + escape(name) + "}" for _, name in ticks) + "}")
    if chart.x_range is not None:
        options.append(f"xmin={chart.x_range[0]:.4g}, xmax={chart.x_range[1]:.4g}")
    if chart.log_x:
        options.append("xmode=log, log basis x=2")
        xs = [p.x for s in series for p in s.points]
        if xs and 1 < max(xs) / min(xs) < NARROW:  # so narrow a logarithmic axis overflows TeX's dimensions
            options.append(f"xmin={min(xs) / NARROW:.4g}, xmax={max(xs) * NARROW:.4g}")
    if chart.kind == "bar":
        options.append(f"ybar, /pgf/bar width={bar_cm:.3f}cm, xtick style={{draw=none}}")
        options.append(f"xmin=-0.5, xmax={len(ticks) - 0.5:g}")
        slot = (width - 1.6) / groups  # long names break at their hyphens
        options.append(f"xticklabel style={{align=center, text width={0.95 * slot:.2f}cm}}")
    lines = [r"\begin{tikzpicture}[baseline]", r"\begin{axis}[" + ",\n  ".join(options) + "]"]
    if chart.band is not None:
        lines.append(_across("path[fill=black!15]", "rectangle", *chart.band))
    if chart.reference is not None:
        lines.append(_across("draw[black!60, densely dashed]", "--", chart.reference, chart.reference))
    lines += chart.panels[panel].extra
    for i, s in enumerate(series):
        shift = (chart.looks.index(s.look) - (len(chart.looks) - 1) / 2) * bar_cm
        lines.append(_plot(chart, panel, i, s.look, shift))
    lines += [r"\end{axis}", r"\end{tikzpicture}" + (r"\par\smallskip" if ends_row else r"\hfill%")]
    return "\n".join(lines)


def _across(draw: str, shape: str, low: float, high: float) -> str:
    """From the left to the right edge of the axis, whatever the x scale."""
    return (
        rf"\{draw} ({{rel axis cs:0,0}}|-{{axis cs:1,{low:.5g}}}) {shape} "
        rf"({{rel axis cs:1,0}}|-{{axis cs:1,{high:.5g}}});"
    )


def _plot(chart: Chart, panel: int, index: int, look: ServerStyle, shift_cm: float) -> str:
    style = {
        "bar": f"draw={look.color}, fill={look.color}, bar shift={shift_cm:.3f}cm",
        "line": f"color={look.color}, mark={look.mark}, mark size=2pt",
        "scatter": f"color={look.color}, mark={look.mark}, mark size=2.8pt, only marks",
    }[chart.kind]
    return (
        rf"\addplot+[{style}, discard if not={{series}}{{{index}}}, error bars/.cd, y dir=both, y explicit,"
        "\n  error bar style={black!75, line width=0.4pt}, error mark options={rotate=90, mark size=1.4pt}]\n  "
        rf"table[col sep=comma, x=x, y=y, y error minus=minus, y error plus=plus] {{data/{chart.name}-{panel}.csv}};"
    )


def _legend(chart: Chart) -> str:
    """One line of keys under the panels: the same look, the same name, whatever panel it appears in."""
    keys = []
    for look in chart.looks:
        symbol = (
            rf"\tikz[baseline=-0.6ex]\fill[{look.color}] (0,-0.1) rectangle (0.28,0.12);"
            if chart.kind == "bar"
            else rf"\tikz[baseline=-0.6ex]\draw[{look.color}, thick] (0,0) -- (0.44,0) plot[mark={look.mark}, "
            rf"mark options={{{look.color}}}, mark size=2pt] coordinates {{(0.22,0)}};"
        )
        keys.append(rf"\mbox{{{symbol}~\arm{{{escape(look.server)}}}}}")
    return r"{\footnotesize\centering " + r"\quad ".join(keys) + r"\par}"
