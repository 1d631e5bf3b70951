"""The heat map of speed-up by prompt category and server, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

matplotlib.rcParams.update({"font.size": 8, "svg.hashsalt": "ddtree", "pdf.fonttype": 42, "text.parse_math": False})


def draw(rows: Sequence[str], columns: Sequence[str], values: np.ndarray, path: Path, label: str) -> None:
    """`values` [len(rows), len(columns)]: ratios, NaN where not measured. The colour scale is logarithmic and symmetric
    about 1: brown slower, teal faster (distinct under colour-vision deficiencies); blank cells are missing."""
    figure = Figure(figsize=(6.2, 0.7 + 0.27 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    logs = np.ma.masked_invalid(np.log2(values))
    reach = min(3.0, max(0.5, float(np.abs(logs).max())))
    image = axes.imshow(logs, cmap="BrBG", vmin=-reach, vmax=reach, aspect="auto")
    crowded = max(len(c) for c in columns) * len(columns) > 60
    axes.set_xticks(
        range(len(columns)),
        [_printable(c) for c in columns],
        rotation=20 if crowded else 0,
        ha="right" if crowded else "center",
    )
    axes.set_yticks(range(len(rows)), [_printable(r) for r in rows])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            red, green, blue, _ = image.cmap(image.norm(np.log2(value)))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black")
    ticks = [t for t in (0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 8) if abs(np.log2(t)) <= reach]
    bar = figure.colorbar(image, ax=axes, pad=0.02, extend="both" if np.abs(logs).max() > reach else "neither")
    bar.set_ticks([float(np.log2(t)) for t in ticks], labels=[f"{t:g}" for t in ticks])
    bar.set_label(label)
    bar.outline.set_visible(False)
    figure.savefig(path, metadata={"CreationDate": None, "ModDate": None})


def _printable(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:40]
