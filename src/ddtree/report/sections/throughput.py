"""Section 3: throughput by method and workload, absolute and relative to autoregressive decoding."""

from __future__ import annotations

from pylatex import Document, NoEscape, Section

from ddtree.report.context import Context, arm, figure, interval, paragraph, table
from ddtree.report.escape import escape


def write(document: Document, context: Context) -> None:
    with document.create(Section("Throughput by method and workload", label=False)) as section:
        if not context.measured():
            paragraph(section, "No load cell was measured, so there is no throughput to show.")
            return
        paragraph(
            section,
            "Figure~\\ref{fig:throughput} shows what a server delivers, figure~\\ref{fig:speedup} and "
            "table~\\ref{tab:speedup} how that compares with autoregressive decoding of the same answers. A server that "
            "is missing from a group has no measurement there.",
        )
        figure(
            section,
            "figures/throughput.tex",
            "Output tokens per second of the whole run, by workload; one panel per concurrency, all requests of the run "
            "together. Bars: mean over the repeats; whiskers: smallest and largest repeat, absent where a workload ran "
            "once. " + _notes(context, "throughput"),
            "throughput",
        )
        figure(
            section,
            "figures/speedup.tex",
            rf"Speed-up over {arm(context.plan.baseline)}: ratio of the time per output token, prefill included, paired "
            r"by conversation, turn and repeat. Whiskers: 95\,\% bootstrap intervals. Dashed: no gain. Grey: the noise "
            "floor, the largest difference between two equal runs of one cell"
            + ("" if _has_noise(context) else " (not shown: nothing was repeated)")
            + ". "
            + _notes(context, "speedup"),
            "speedup",
        )
        for concurrency in context.concurrencies():
            _table(section, context, concurrency)
        section.append(NoEscape(r"\FloatBarrier"))


def _has_noise(context: Context) -> bool:
    return context.row("noise", server="all", workload="all") is not None


def _notes(context: Context, name: str) -> str:
    file = context.folder / "data" / f"{name}.notes"
    return file.read_text().strip() if file.exists() else ""


def _table(section: Section, context: Context, concurrency: int) -> None:
    chosen = context.rows("speedups", concurrency=concurrency, category="all", metric="e2e", against="baseline")
    names = [w for w in [*context.workloads(), "all"] if (chosen["workload"] == w).any()]
    servers = [s for s in context.measured() if (chosen["server"] == s).any()]
    if not names or not servers:
        return
    counts = {w: int(chosen[chosen["workload"] == w]["n"].max()) for w in names}
    body = []
    for name in names:
        for server in servers:
            where = {"server": server, "workload": name, "concurrency": concurrency, "category": "all"}
            body.append(
                [
                    rf"{escape(name)} ($n={counts[name]}$)" if server == servers[0] else "",
                    arm(server),
                    interval(context.row("speedups", **where, metric="e2e", against="baseline")),
                    interval(context.row("speedups", **where, metric="decode", against="baseline")),
                    interval(context.row("speedups", **where, metric="e2e", against="chain")),
                ]
            )
    suffix = "" if concurrency == context.concurrencies()[0] else f"-{concurrency}"
    table(
        section,
        "llrrr",
        ["Workload", "Server", "End to end", "Decoding only", "Over the chain"],
        body,
        rf"Speed-ups at concurrency {concurrency} with 95\,\% intervals. End to end and decoding only (without the first "
        rf"token) are relative to {arm(context.plan.baseline)}; the last column is the end-to-end ratio to "
        rf"{arm(context.plan.chain) if context.plan.chain else 'the chain'}. $n$: conversations, which the bootstrap resamples.",
        "speedup" + suffix,
    )
