"""Section 3: throughput by method and workload, absolute and relative to autoregressive decoding."""

from __future__ import annotations

from pylatex import Document, NoEscape, Section

from ddtree.report.context import Context, arm, figure, paragraph, table
from ddtree.report.escape import escape


def write(document: Document, context: Context) -> None:
    with document.create(Section("Throughput by method and workload", label="sec:throughput")) as section:
        if not context.concurrencies():
            paragraph(section, "No load cell was measured, so there is no throughput to show.")
            return
        base = arm(context.plan.baseline)
        compared = context.drawn("speedup")
        paragraph(
            section,
            "Figure~\\ref{fig:throughput} shows what a server delivers"
            + (
                ", figure~\\ref{fig:speedup} and table~\\ref{tab:speedup} how that compares with autoregressive "
                "decoding of the same answers. "
                if compared
                else f". Nothing can be compared with {base}: its cells, or those of every other server, are missing. "
            )
            + "A server that is missing from a group has no measurement there.",
        )
        figure(
            section,
            "figures/throughput.tex",
            "Output tokens per second of the whole run, all requests in flight together, by workload; one panel per "
            "concurrency. Bars: mean over the repeats; whiskers: smallest and largest repeat, absent where a workload "
            "ran once. " + context.notes("throughput"),
            "throughput",
        )
        if not compared:
            return
        noise = context.row("noise", server="all", workload="all", metric="e2e")
        figure(
            section,
            "figures/speedup.tex",
            rf"Speed-up over {base}: ratio of the time per output token, prefill included, paired by conversation, "
            rf"turn "
            r"and repeat. Whiskers: 95\,\% bootstrap intervals over conversations. Dashed: no gain. "
            + (
                "The noise floor is not drawn, since no workload was repeated. "
                if noise is None
                else "Grey band around it: the noise floor, the largest difference between two equal runs of one cell "
                rf"({context.macros.number('noise', noise, 'floor', 1, scale=100, name='percent')}\,\%). "
            )
            + context.notes("speedup"),
            "speedup",
        )
        for concurrency in context.concurrencies():
            _table(section, context, concurrency)
        section.append(NoEscape(r"\FloatBarrier"))


def _table(section: Section, context: Context, concurrency: int) -> None:
    chosen = context.rows("speedups", concurrency=concurrency, category="all", metric="e2e", against="baseline")
    names = [w for w in context.workloads() if (chosen["workload"] == w).any()]
    names += ["all"] if len(names) > 1 else []
    servers = [s for s in context.measured() if (chosen["server"] == s).any()]
    if not names or not servers:
        return
    counts = {w: int(chosen[chosen["workload"] == w]["n"].max()) for w in names}
    body = []
    for name in names:
        for server in servers:
            body.append(
                [
                    rf"{escape(name)} ($n={counts[name]}$)" if server == servers[0] else "",
                    arm(server),
                    context.speedup(server, name, concurrency, "e2e", "baseline"),
                    context.speedup(server, name, concurrency, "decode", "baseline"),
                    context.speedup(server, name, concurrency, "e2e", "chain"),
                ]
            )
    suffix = "" if concurrency == context.concurrencies()[0] else f"-{concurrency}"
    table(
        section,
        "llrrr",
        ["Workload", "Server", "End to end", "Decoding only", "Over the chain"],
        body,
        rf"Speed-ups at concurrency {concurrency} with 95\,\% intervals. End to end and decoding only (without the "
        rf"first token) are relative to {arm(context.plan.baseline)}; the last column is the end-to-end ratio to "
        rf"{arm(context.plan.chain) if context.plan.chain else 'the chain'}. $n$: conversations, which the bootstrap "
        r"resamples; \dag: some workloads missing.",
        "speedup" + suffix,
    )
