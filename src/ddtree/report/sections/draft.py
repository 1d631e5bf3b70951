"""Section 5: why a budget wins or loses: tokens per step against the time of a step."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pylatex import Document, NoEscape, Section

from ddtree.report.context import Context, arm, figure, interval, number, paragraph, table

FIGURES = {
    "budget": r"Left: acceptance length $\tau$, the tokens that a verify step emits, bonus token included, against the "
    r"number of rows that it verifies (a tree of budget $B$ has $B+1$). Right: the speed-up of decoding that comes "
    r"of it. All workloads together, 95\,\% intervals.",
    "depth": r"Share of verify steps that accepted at least $d$ drafted tokens, all workloads together.",
    "steps": r"Tokens per verify step against the time of a step, relative to the time of one autoregressive token. "
    r"Dashed lines join points of equal decoding speed-up. A wider tree moves up (more tokens) and right (slower "
    r"steps); it pays only while it climbs faster than the lines.",
}


def write(document: Document, context: Context) -> None:
    with document.create(Section("Draft budget and acceptance", label=False)) as section:
        first = context.concurrencies()[0] if context.concurrencies() else None
        rows = context.rows("acceptance", workload="all", concurrency=first)
        speculative = rows[rows["method"] != "autoregressive"]
        if first is None or speculative.empty:
            paragraph(section, "No speculative server was measured, so there is no acceptance to show.")
            return
        paragraph(
            section,
            r"Decoding speed-up is a product of two things that are measured separately: tokens per step, and the time "
            r"of a step relative to an autoregressive one. A larger budget raises both; it pays while the first grows "
            rf"faster than the second. All figures here are at concurrency {first}.",
        )
        for text in _comparison(context, first):
            paragraph(section, text)
        _table(section, context, first)
        for name, caption in FIGURES.items():
            if context.drawn(name):
                figure(section, f"figures/{name}.tex", caption, name)
        if context.drawn("categories"):
            figure(
                section,
                "figures/categories.pdf",
                rf"Speed-up over {arm(context.plan.baseline)} (end to end) by category of prompt and server, "
                rf"concurrency {first}; $n$ is the number of conversations of the category. Blank: not measured.",
                "categories",
            )
        section.append(NoEscape(r"\FloatBarrier"))


def _comparison(context: Context, concurrency: int) -> list[str]:
    """Best tree, widest tree and chain, each as the product that explains it."""
    factors = ["tau", "relative_step_time", "decode_speedup"]
    rows = context.rows("acceptance", workload="all", concurrency=concurrency).dropna(subset=factors)
    trees = rows[rows["method"] == "ddtree"]
    if trees.empty:
        return ["No tree was measured next to the baseline, so the product cannot be compared."]

    def product(row: pd.Series[Any]) -> str:
        tau, step, speed = (context.macros.number("acceptance", row, c) for c in factors)
        return rf"{tau} tokens per step at {step} times the time of an autoregressive step, a speed-up of {speed}"

    best = trees.sort_values("decode_speedup").iloc[-1]
    widest = trees.sort_values("budget").iloc[-1]
    text = f"The tree that decodes fastest, {arm(best['server'])}, emits {product(best)}."
    if widest["server"] != best["server"]:
        text += f" The widest, {arm(widest['server'])}, emits {product(widest)}: "
        text += (
            "its extra tokens cost more time than they save."
            if widest["tau"] > best["tau"]
            else "it does not even accept more."
        )
    elif len(trees) > 1:
        text += " It is also the widest, so a still larger budget may do better."
    for _, chain in rows[rows["server"] == context.plan.chain].iterrows():
        text += f" The chain {arm(chain['server'])} emits {product(chain)}."
    return [text]


def _table(section: Section, context: Context, concurrency: int) -> None:
    body = []
    for server in context.measured():
        row = context.row("acceptance", server=server, workload="all", concurrency=concurrency)
        if row is None:
            continue
        shown = row.rename({"tau_low": "low", "tau_high": "high"})
        body.append(
            [
                arm(server),
                number(row["nodes_per_step"], 1),
                interval(shown, "tau"),
                number(row["ms_per_step"], 1),
                number(row["relative_step_time"]),
                number(row["decode_speedup"]),
                number(row["n"], 0),
            ]
        )
    table(
        section,
        "lrrrrrr",
        ["Server", "Rows/step", r"$\tau$", "ms/step", "Rel.\\ step time", r"Speed-up", "Steps"],
        body,
        rf"Acceptance at concurrency {concurrency}, all workloads together. $\tau$: tokens per verify step with its "
        r"95\,\% interval; rel.\ step time: time of a verify step over that of an autoregressive one; speed-up of "
        r"decoding $= \tau\,/\,$rel.\ step time; rows: tokens that a step verifies, the known one included.",
        "acceptance",
    )
