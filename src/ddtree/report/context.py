"""What every section of the report needs, and the few building blocks that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pylatex import Command, Figure, NoEscape, Table, Tabular
from pylatex.base_classes import Container

from ddtree.plan.schema import Plan
from ddtree.report.escape import escape
from ddtree.report.macros import MISSING, Macros
from ddtree.report.style import ServerStyle


@dataclass(frozen=True)
class Context:
    plan: Plan
    tables: Mapping[str, pd.DataFrame]
    looks: Mapping[str, ServerStyle]
    macros: Macros
    folder: Path

    def rows(self, table: str, **where: object) -> pd.DataFrame:
        """The rows of a table whose columns have these values."""
        frame = self.tables[table]
        for column, value in where.items():
            frame = frame[frame[column] == value]
        return frame

    def row(self, table: str, **where: object) -> pd.Series[Any] | None:
        """The first such row, or None."""
        frame = self.rows(table, **where)
        return None if frame.empty else frame.iloc[0]

    def measured(self) -> list[str]:
        """Servers with at least one cell, in the order of every chart."""
        have = set(self.rows("arms")[self.tables["arms"]["cells_measured"] > 0]["server"])
        return [s for s in self.looks if s in have]

    def concurrencies(self) -> list[int]:
        """Those that any load cell was measured at."""
        return sorted(int(c) for c in self.rows("cells", role="load")["concurrency"].unique())

    def first_concurrency(self) -> int:
        """The lowest, where the factors of a speed-up are shown; -1 when nothing was measured."""
        return min(self.concurrencies(), default=-1)

    def workloads(self) -> list[str]:
        """The load workloads, in the plan's order."""
        return [name for name, w in self.plan.workloads.items() if w.role == "load"]

    def drawn(self, figure: str) -> bool:
        """Whether the figure had data and so exists."""
        return any((self.folder / "figures" / f"{figure}{ending}").exists() for ending in (".tex", ".pdf"))

    def notes(self, figure: str) -> str:
        """What the caption has to say about values beyond the axis."""
        file = self.folder / "data" / f"{figure}.notes"
        return file.read_text().strip() if file.exists() else ""

    def speedup(
        self, server: str, workload: str, concurrency: int, metric: str, against: str, bounds: bool = True
    ) -> str:
        """A table cell, with its interval if `bounds`, and a dagger where `all` is fewer workloads than others have."""
        where = {"workload": workload, "concurrency": concurrency, "category": "all", "against": against}
        rows = self.rows("speedups", metric=metric, **where)
        mine = rows[rows["server"] == server]
        if mine.empty:
            return MISSING
        partial = mine.iloc[0]["workloads"] < rows["workloads"].max()
        value = interval(mine.iloc[0]) if bounds else number(mine.iloc[0]["ratio"])
        return value + (r"\rlap{\,$^\dagger$}" if partial else "")

    def ratio(self, table: str, row: pd.Series[Any] | None, column: str = "ratio") -> NoEscape:
        """A value of the prose with its interval and n, all as macros."""
        if row is None:
            return NoEscape(MISSING)
        number = [self.macros.number(table, row, c) for c in (column, "low", "high")]
        n = self.macros.number(table, row, "n", 0)
        if MISSING in (number[1], number[2]):
            return NoEscape(rf"{number[0]} (no interval, $n = {n}$)")
        return NoEscape(rf"{number[0]} (95\,\% interval {number[1]} to {number[2]}, $n = {n}$)")


def arm(server: str) -> str:
    return rf"\arm{{{escape(server)}}}"


def paragraph(where: Container, text: str) -> None:
    where.append(NoEscape(text + "\n\n"))


def listing(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def number(value: object, digits: int = 2, scale: float = 1.0) -> str:
    """A number of a table; a dash when it is missing."""
    if value is None or pd.isna(value):  # type: ignore[call-overload]
        return MISSING
    return rf"\num{{{float(value) * scale:.{digits}f}}}"  # type: ignore[arg-type]


def interval(row: pd.Series[Any] | None, column: str = "ratio", digits: int = 2) -> str:
    """`2.31 [2.20, 2.44]` of a table; a dash when it is missing."""
    if row is None or pd.isna(row[column]):
        return MISSING
    value = number(row[column], digits)
    if pd.isna(row["low"]) or pd.isna(row["high"]):
        return value
    return rf"{value} {{\footnotesize\color{{black!60}}[{row['low']:.{digits}f}, {row['high']:.{digits}f}]}}"


def figure(where: Container, source: str, caption: str, label: str) -> None:
    r"""A float with a chart (``figures/x.tex``) or a picture (``figures/x.pdf``)."""
    body = rf"\input{{{source}}}" if source.endswith(".tex") else rf"\includegraphics[width=\textwidth]{{{source}}}"
    with where.create(Figure(position="htbp")) as float_:
        float_.append(NoEscape(r"\centering " + body))
        float_.append(Command("caption", NoEscape(caption)))
        float_.append(Command("label", f"fig:{label}"))


def table(
    where: Container, spec: str, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, label: str
) -> None:
    """A float with a table of ready LaTeX cells."""
    with where.create(Table(position="htbp")) as float_:
        float_.append(Command("caption", NoEscape(caption)))
        float_.append(Command("label", f"tab:{label}"))
        float_.append(
            NoEscape(r"\centering\footnotesize\setlength{\tabcolsep}{4pt}\begin{adjustbox}{max width=\textwidth}")
        )
        float_.append(tabular(spec, header, rows))
        float_.append(NoEscape(r"\end{adjustbox}"))


def tabular(spec: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Tabular:
    """Rows whose first cell is empty continue the group above them."""
    grouped = any(not row[0] for row in rows)
    inner = Tabular(spec, booktabs=True, width=len(header))
    inner.add_row([NoEscape(rf"\textbf{{{h}}}") if h else "" for h in header])
    inner.add_hline()
    for i, row in enumerate(rows):
        if i and grouped and row[0]:
            inner.append(NoEscape(r"\addlinespace"))
        inner.add_row([NoEscape(cell) for cell in row])
    return inner
