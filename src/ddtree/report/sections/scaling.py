"""Section 4: what concurrency and context length do to the comparison."""

from __future__ import annotations

from pylatex import Document, NoEscape, Section, Subsection

from ddtree.report.context import Context, arm, figure, paragraph


def write(document: Document, context: Context) -> None:
    with document.create(Section("Scaling with concurrency and context", label=False)) as section:
        with section.create(Subsection("Concurrency", label=False)):
            _concurrency(section, context)
        with section.create(Subsection("Context length", label=False)):
            _context(section, context)
        section.append(NoEscape(r"\FloatBarrier"))


def _concurrency(section: Section, context: Context) -> None:
    if not context.drawn("concurrency"):
        paragraph(section, "No workload was measured at more than one concurrency, so there is no curve to draw.")
        return
    paragraph(
        section,
        "Verification of several drafted tokens is cheap as long as the hardware has arithmetic to spare. Requests "
        "that run together use it up: a wide tree that pays for one request may cost more than it brings for many. "
        "Figure~\\ref{fig:concurrency} shows where the lines cross or meet.",
    )
    figure(
        section,
        "figures/concurrency.tex",
        "Output tokens per second of all requests together, by the number of requests in flight; one panel per "
        "workload that was measured at several. Points: mean over repeats; whiskers: smallest and largest repeat. An "
        "incomplete line has no measurement there.",
        "concurrency",
    )


def _context(section: Section, context: Context) -> None:
    if not context.drawn("context"):
        paragraph(section, "Fewer than two single-turn workloads were measured, so context length cannot be compared.")
        return
    first = context.concurrencies()[0]
    paragraph(
        section,
        "The prompts of the workloads differ in kind as well as in length, so figure~\\ref{fig:context} compares "
        "servers at each length, not lengths with each other.",
    )
    figure(
        section,
        "figures/context.tex",
        rf"Left: speed-up of decoding (time per output token after the first) over {arm(context.plan.baseline)}, with "
        r"95\,\% intervals. Right: time to the first token, mean and 95\,\% interval. Both against the mean prompt "
        rf"length of each single-turn workload, concurrency {first}.",
        "context",
    )
