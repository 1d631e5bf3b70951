"""The heat map of speed-up by prompt category and server, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

matplotlib.rcParams.update({"font.size": 8, "svg.hashsalt": "ddtree", "pdf.fonttype": 42, "text.parse_math": False})


def draw(rows: Sequence[str], columns: Sequence[str], values: np.ndarray, path: Path, label: str) -> None:
    """`values` [len(rows), len(columns)]: ratios, NaN where not measured. Colours are centred on 1: brown slower, teal
    faster (distinct under colour-vision deficiencies); blank cells are missing."""
    figure = Figure(figsize=(6.2, 0.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    finite = values[np.isfinite(values)]
    top = max(1.1, float(np.quantile(finite, 0.95))) if finite.size else 2.0
    bottom = min(0.9, float(finite.min())) if finite.size else 0.5
    image = axes.imshow(
        np.ma.masked_invalid(values), cmap="BrBG", norm=TwoSlopeNorm(1.0, bottom, max(top, 1.001)), aspect="auto"
    )
    axes.set_xticks(range(len(columns)), [_printable(c) for c in columns], rotation=20, ha="right")
    axes.set_yticks(range(len(rows)), [_printable(r) for r in rows])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            red, green, blue, _ = image.cmap(image.norm(value))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black")
    bar = figure.colorbar(image, ax=axes, pad=0.02, extend="max" if finite.size and finite.max() > top else "neither")
    bar.set_label(label)
    bar.outline.set_visible(False)
    figure.savefig(path, metadata={"CreationDate": None, "ModDate": None})


def _printable(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:40]
