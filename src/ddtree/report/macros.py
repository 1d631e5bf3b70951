"""Numbers of the prose: each is a LaTeX macro whose comment names the table row and the cell file it comes from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from pylatex import NoEscape

MISSING = r"\missing{}"
_DEFINITION = r"""% Every number of the prose. \val{table:row:column} is column `column` of row `row` of
% tables/<table>.csv; the comment names what the row is about and the cell file behind it.
\newcommand{\defval}[2]{\expandafter\def\csname val:#1\endcsname{#2}}
\newcommand{\val}[1]{\ifcsname val:#1\endcsname\csname val:#1\endcsname\else
  \PackageError{ddtree}{No number named #1}{It is missing from data/macros.tex.}\fi}
"""


class Macros:
    """Collects the numbers that the text asks for."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    def number(
        self, table: str, row: pd.Series[Any], column: str, digits: int = 2, *, scale: float = 1.0, name: str = ""
    ) -> NoEscape:
        r"""``\val{...}`` for one value of one table row, rounded to `digits` decimals; a dash when it is missing.

        `name` tells two renderings of the same value apart, e.g. as a percentage."""
        value = row[column]
        if value is None or pd.isna(value) or not math.isfinite(float(value)):
            return NoEscape(MISSING)
        key = f"{table}:{int(row['row'])}:{column}" + (f":{name}" if name else "")
        about = ", ".join(
            str(row[k])
            for k in ("server", "workload", "concurrency", "metric", "against")
            if k in row.index and pd.notna(row[k])
        )
        comment = " ".join(f"{about} <- {row.get('path', '')}".split())
        comment = "".join(c if " " <= c <= "~" else "?" for c in comment)[:300]
        self._lines[key] = rf"\defval{{{key}}}{{\num{{{float(value) * scale:.{digits}f}}}}} % {comment}"
        return NoEscape(rf"\val{{{key}}}")

    def write(self, path: Path) -> None:
        path.write_text(_DEFINITION + "\n".join(self._lines.values()) + "\n")
