"""Section 1: which arm wins, by how much, how sure that is, and what it does not say."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pylatex import Document, Itemize, NoEscape, Section

from ddtree.report.context import Context, arm, listing, number, paragraph, table
from ddtree.report.escape import escape

MOST_WITH_BOUNDS = 3  # columns of speed-ups that fit on the page with their intervals


def write(document: Document, context: Context) -> None:
    with document.create(Section("Summary", label=False)) as section:
        section.append(NoEscape(_banner(context)))
        sentences = [s for c in context.concurrencies() for s in _verdict(context, c)]
        if sentences:
            with section.create(Itemize()) as items:
                for sentence in sentences:
                    items.add_item(NoEscape(sentence))
        else:
            paragraph(section, "No cell was measured, so there is no result. Appendix~\\ref{app:failures} says why.")
        for text in (_noise(context), _answers(context), _missing(context)):
            if text:
                paragraph(section, text)
        if sentences:
            _overview(section, context)


def _banner(context: Context) -> str:
    devices = {s.device for s in context.plan.servers.values()}
    if devices != {"cpu"}:
        return ""
    models = listing([rf"\texttt{{{escape(m)}}}" for m in sorted(_models(context))])
    return (
        rf"\banner{{\textbf{{This run is a small model on a CPU.}} It measured {models} without a GPU. "
        "It shows that the whole pipeline works and which method pays \\emph{on this machine with this model}. "
        "It says nothing about large models or GPUs, where a verification step costs a different share of the time. "
        "With few prompts the intervals are wide; read them before the means.}"
    )


def _models(context: Context) -> set[str]:
    return {s.model for s in context.plan.servers.values()}


def _verdict(context: Context, concurrency: int) -> list[str]:
    """The comparison with the baseline, then the one with the chain."""
    at = rf"\textbf{{Concurrency {concurrency}.}} "
    base = arm(context.plan.baseline)
    best = context.row("best", concurrency=concurrency, against="baseline", metric="e2e")
    if best is None:
        nothing = f"Nothing can be compared with {base}: too few answers that both sides gave."
        return [at + nothing, *_against_chain(context, concurrency)]
    ratio = context.ratio("best", best)
    first, second = str(best["server"]), str(best["server_second"])
    outcome = best["outcome"]
    if outcome == "too few":
        text = (
            f"Too few conversations to name a winner. So far the best server, {arm(first)}, has a speed-up of {ratio} "
            f"over {base}."
        )
    elif outcome == "faster" and first == second:
        text = f"{arm(first)} is the fastest, with a speed-up of {ratio} over {base} in time per output token."
    elif outcome == "faster":
        text = (
            f"Speculative decoding is faster than {base}, with a speed-up of {ratio}, but which server wins is open: "
            f"one half of the prompts favours {arm(first)}, the other {arm(second)}."
        )
    elif outcome == "slower":
        text = f"{base} is the fastest: the best of the others, {arm(first)}, has a speed-up of {ratio}, a loss."
    elif outcome == "same":
        text = f"No difference beyond the noise: the best server, {arm(first)}, has a speed-up of {ratio} over {base}."
    else:
        text = (
            f"No winner: the best server, {arm(first)}, has a speed-up of {ratio} over {base}, which does not settle "
            "whether it is faster at all."
        )
    text += _more(best)
    wrong = [s for s in dict.fromkeys((first, second)) if _bugs(context, s)]
    if wrong:
        text += f" But {listing([arm(s) for s in wrong])} gave wrong answers."
    return [at + text, *_against_chain(context, concurrency)]


def _against_chain(context: Context, concurrency: int) -> list[str]:
    if context.plan.chain is None or not any(s.method == "ddtree" for s in context.plan.servers.values()):
        return []
    at, chain = rf"\textbf{{Concurrency {concurrency}, tree or chain.}} ", arm(context.plan.chain)
    best = context.row("best", concurrency=concurrency, against="chain", metric="e2e")
    if best is None:
        return [at + f"No tree can be compared with {chain}: too few answers that both sides gave."]
    ratio = context.ratio("best", best)
    names = listing([arm(s) for s in dict.fromkeys([str(best["server"]), str(best["server_second"])])])
    text = {
        "too few": f"Too few conversations to decide. So far the best tree ({names}) has {ratio} of the chain's speed.",
        "faster": f"The best tree ({names}) beats {chain}, with a speed-up of {ratio} over it.",
        "slower": f"{chain} beats the best tree ({names}), whose speed is {ratio} of the chain's.",
        "same": f"The best tree ({names}) and {chain} do not differ beyond the noise: {ratio} of the chain's speed.",
        "open": f"Undecided: the speed of the best tree ({names}) is {ratio} of that of {chain}.",
    }[str(best["outcome"])]
    return [at + text + _more(best)]


def _more(best: pd.Series[Any]) -> str:
    """What would settle a comparison that the interval and the noise floor leave open."""
    if best["outcome"] != "open":
        return ""
    more = best["more_prompts"]
    return "" if pd.isna(more) else f" About {more} more prompts would settle it, if the ratio stays what it is."


def _bugs(context: Context, server: str) -> int:
    row = context.row("lossless", comparison="arm", server=server, workload="all")
    return 0 if row is None else int(row["bug"])


def _noise(context: Context) -> str:
    how = (
        "The best server is chosen on one half of the conversations and its speed-up taken from the other half, both "
        "ways round, so that the luck of picking one of several servers does not count as speed; $n$ is the number of "
        "conversations. "
    )
    row = context.row("noise", server="all", workload="all", metric="e2e")
    if row is None:
        return how + "No workload was repeated, so there is no measure of the noise between equal runs."
    floor = context.macros.number("noise", row, "floor", 1, scale=100, name="percent")
    count = context.macros.number("noise", row, "comparisons", 0)
    return how + (
        rf"Two equal runs of the same cell differed by up to {floor}\,\% ($n = {count}$ such pairs of runs): a "
        "difference below that is noise, whatever its interval says."
    )


def _answers(context: Context) -> str:
    rows = context.rows("lossless", comparison="arm", workload="all")
    if rows.empty:
        return "The answers were not compared: no greedy comparison is available."
    wrong = [(str(r["server"]), r) for _, r in rows.iterrows() if r["bug"] > 0]
    if wrong:
        named = [
            f"{arm(server)} ({context.macros.number('lossless', r, 'bug', 0)} of "
            f"{context.macros.number('lossless', r, 'compared', 0)})"
            for server, r in wrong
        ]
        return (
            rf"\textbf{{Some answers are wrong:}} beyond rounding they differ from the baseline's with "
            rf"{listing(named)}. "
            "The speed of these servers means nothing until that is understood (section~\\ref{sec:correctness})."
        )
    if rows["overrun"].sum():
        return (
            "Some answers go on past their end-of-text token, which is the server's bookkeeping; all others that could "
            "be judged equal the autoregressive ones or depart from them at a tie (section~\\ref{sec:correctness})."
        )
    if not rows["compared"].sum():
        return "No greedy answer could be compared, so nothing is known about whether the answers are equal."
    text = "Every greedy answer that could be judged equals the autoregressive one or departs from it at a tie"
    if rows["unscored"].sum():
        text += "; some departures could not be judged, because their workload was not scored"
    return text + " (section~\\ref{sec:correctness})."


def _missing(context: Context) -> str:
    rows = context.tables["arms"]
    absent = [arm(str(r["server"])) for _, r in rows.iterrows() if r["status"] in ("failed", "not run")]
    partly = [arm(str(r["server"])) for _, r in rows.iterrows() if r["status"] == "partly"]
    parts = []
    if absent:
        parts.append(f"No numbers from {listing(absent)}")
    if partly:
        parts.append(f"cells missing from {listing(partly)}" if parts else f"Cells missing from {listing(partly)}")
    doubtful = context.rows("failures", scope="client").drop_duplicates(["server", "workload", "concurrency"])
    if len(doubtful):
        parts.append(
            f"{len(doubtful)} cell{'' if len(doubtful) == 1 else 's'} measured under conditions that make the times "
            "doubtful"
        )
    return "; ".join(parts) + ". Appendix~\\ref{app:failures} gives the reasons." if parts else ""


def _overview(section: Section, context: Context) -> None:
    concurrencies = context.concurrencies()
    few = len(concurrencies) <= MOST_WITH_BOUNDS
    header = [
        "Server",
        "Tokens/step",
        "ms/step",
        *(rf"{'Speed-up, ' if few else ''}$c={c}$" for c in concurrencies),
        "Answers",
        "Coding",
    ]
    body = []
    for server in context.looks:
        acceptance = context.row("acceptance", server=server, workload="all", concurrency=concurrencies[0])
        body.append(
            [
                arm(server),
                number(None if acceptance is None else acceptance["tau"]),
                number(None if acceptance is None else acceptance["ms_per_step"], 1),
                *(_speedup(context, server, c) for c in concurrencies),
                _lossless(context, server),
                _coding(context, server),
            ]
        )
    bounds = r"its 95\,\% bootstrap interval" if few else r"intervals in section~\ref{sec:throughput}"
    table(
        section,
        "lrr" + "r" * len(concurrencies) + "ll",
        header,
        body,
        rf"Every server in one line. Speed-up at concurrency $c$: time per output token, prefill included, relative to "
        rf"{arm(context.plan.baseline)}, over all workloads, paired by answer, "
        rf"with {bounds}. "
        rf"Tokens and milliseconds per verify step at concurrency {concurrencies[0]}. Answers: greedy output compared "
        r"with the baseline's. Coding: HumanEval problems passed. \textendash: not measured; \dag: some workloads "
        r"missing.",
        "overview",
    )


def _speedup(context: Context, server: str, concurrency: int) -> str:
    if server == context.plan.baseline and server in context.measured():
        return number(1)
    bounds = len(context.concurrencies()) <= MOST_WITH_BOUNDS
    return context.speedup(server, "all", concurrency, "e2e", "baseline", bounds)


def _lossless(context: Context, server: str) -> str:
    row = context.row("lossless", comparison="arm", server=server, workload="all")
    if row is None:
        return "reference" if server == context.plan.baseline and server in context.measured() else number(None)
    if row["bug"] > 0:
        return rf"\textbf{{{int(row['bug'])} wrong}}"
    if row["compared"] == 0:
        return number(None)
    if row["unscored"] > 0:
        return f"{int(row['unscored'])} open"
    if row["overrun"] > 0:
        return f"{int(row['overrun'])} overrun"
    return "equal" if row["tie"] == 0 else f"equal ({int(row['tie'])} tie{'s' if row['tie'] > 1 else ''})"


def _coding(context: Context, server: str) -> str:
    row = context.row("coding", server=server)
    return number(None) if row is None else f"{int(row['passed'])}/{int(row['n'])}"
