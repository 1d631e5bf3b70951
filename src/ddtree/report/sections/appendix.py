"""Appendix: every cell, every failure with its reason, provenance, and where each number comes from."""

from __future__ import annotations

from collections.abc import Sequence

from pylatex import Document, LongTable, NoEscape, Section, Subsection

from ddtree.report.context import Context, arm, number, paragraph
from ddtree.report.escape import escape

_METRICS = {  # metric -> (heading, digits, scale)
    "output_throughput": ("tok/s", 1, 1.0),
    "ttft_s": ("TTFT", 0, 1000.0),
    "tpot_s": ("TPOT", 1, 1000.0),
    "e2e_s": ("E2E", 2, 1.0),
}


def write(document: Document, context: Context) -> None:
    document.append(NoEscape(r"\appendix"))
    with document.create(Section("Appendix", label=False)) as section:
        with section.create(Subsection("Where a number comes from", label=False)):
            _hops(section, context)
        with section.create(Subsection("Every cell", label=False)):
            _cells(section, context)
        with section.create(Subsection("Failures", label="app:failures")):
            _failures(section, context)
        with section.create(Subsection("Provenance", label=False)):
            _provenance(section, context)
        with section.create(Subsection("What was not measured", label=False)):
            _not_measured(section, context)


def _hops(section: Section, context: Context) -> None:
    folder = rf"\texttt{{{escape(f'results/{context.plan.plan}', breakable=True)}}}"
    paragraph(
        section,
        r"Three hops. (1) A number in the prose is a macro of \texttt{report/data/macros.tex}, a point of a chart is "
        r"a line of \texttt{report/data/<figure>-<panel>.csv}; both name a table and a row. (2) The tables are "
        rf"{folder}\texttt{{/tables/*.csv}} (and \texttt{{.parquet}}); \texttt{{row}} is their first column. (3) The "
        r"column \texttt{path} of that row names the cell file with the raw timestamps of every request.",
    )


def _cells(section: Section, context: Context) -> None:
    pooled = context.tables["pooled"]
    if pooled.empty:
        paragraph(section, "No cell was measured.")
        return
    paragraph(
        section,
        r"Means over the successful requests of all repeats. TTFT and TPOT in milliseconds, E2E in seconds; tok/s is "
        r"the output of the whole run; $\tau$ tokens per verify step; fail: requests without an answer. Every file "
        r"lies below "
        rf"\texttt{{{escape(f'results/{context.plan.plan}/cells', breakable=True)}}} as "
        r"\texttt{<server>/<workload>/c<concurrency>.json}.",
    )
    body = []
    for server in context.looks:
        for workload in context.plan.workloads:
            for concurrency in sorted(set(pooled["concurrency"])):
                rows = pooled[
                    (pooled["server"] == server)
                    & (pooled["workload"] == workload)
                    & (pooled["concurrency"] == concurrency)
                ].set_index("metric")
                if rows.empty:
                    continue
                accepted = context.row("acceptance", server=server, workload=workload, concurrency=concurrency)
                body.append(
                    [
                        arm(server),
                        escape(workload),
                        str(int(concurrency)),
                        str(int(rows.loc["e2e_s", "n"])),
                        str(int(rows["failures"].max())),
                        *(
                            number(rows.loc[m, "value"] if m in rows.index else None, digits, scale)
                            for m, (_, digits, scale) in _METRICS.items()
                        ),
                        number(None if accepted is None else accepted["tau"]),
                    ]
                )
    header = ["Server", "Workload", "$c$", "$n$", "fail", *(h for h, _, _ in _METRICS.values()), r"$\tau$"]
    _long(section, "llrrrrrrrr", header, body)


def _failures(section: Section, context: Context) -> None:
    frame = context.tables["failures"]
    if frame.empty:
        paragraph(section, "Nothing failed: every planned cell was measured and every request was answered.")
        return
    shown: set[str] = set()
    for _, row in frame.iterrows():
        where = arm(str(row["server"]))
        if isinstance(row["workload"], str):
            where += " " + escape(f"{row['workload']} c{int(row['concurrency'])}")
        count = int(row["count"])
        what = {
            "start": "a start failed",
            "server": f"{_count(count, 'cell')} missing",
            "cell": "cell missing",
            "request": f"{_count(count, 'request')} failed",
            "client": f"{_count(count, 'run')} doubtful",
            "coding": "answers not graded",
        }[str(row["scope"])]
        detail = escape(row["detail"], breakable=True, limit=400)
        section.append(
            NoEscape(
                rf"\textbf{{{where}}}: {what}, \texttt{{{escape(row['category'], breakable=True)}}}"
                + (f": {detail}" if detail else "")
                + "\\par\n"
            )
        )
        log = str(row["log_lines"])
        if log not in shown:
            _log(section, log)
        shown.add(log)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _log(section: Section, text: str) -> None:
    lines = [line for line in text.split("\n") if line.strip()][-8:]
    if lines:
        body = "\\\\\n".join(escape(line, breakable=True, limit=240) for line in lines)
        section.append(
            NoEscape(rf"{{\footnotesize\ttfamily\raggedright\leftskip=1.4em\color{{black!70}}{body}\par}}" + "\n")
        )


def _provenance(section: Section, context: Context) -> None:
    frame = context.tables["provenance"]
    if frame.empty:
        paragraph(section, "No cell was measured, so nothing is known about the machine.")
        return
    body = []
    for key, group in frame.groupby("key", sort=False):
        values = sorted(group["value"])
        shown = values[0] if len(values) == 1 else f"{len(values)} values, from {values[0]} to {values[-1]}"
        body.append([rf"\texttt{{{escape(key, breakable=True)}}}", escape(shown, breakable=True, limit=300)])
    _long(section, r"p{0.32\textwidth}>{\raggedright\arraybackslash}p{0.60\textwidth}", ["Fact", "Value"], body)


def _not_measured(section: Section, context: Context) -> None:
    texts = []
    if not any(w.temperature > 0 for w in context.plan.workloads.values()):
        texts.append("Sampling at a temperature above 0: every workload decodes greedily.")
    if len(context.concurrencies()) < 2:
        texts.append("Concurrency: one value only.")
    if not any(s.device == "cuda" for s in context.plan.servers.values()):
        texts.append("GPUs, bfloat16, tensor parallelism.")
    texts.append("Energy, memory use, open-loop (Poisson) arrivals and the quality of answers beyond coding problems.")
    texts.append(
        "Other drafters, other targets, and chains at each tree's verify width, unless the server table lists them."
    )
    paragraph(section, " ".join(texts))


def _long(section: Section, spec: str, header: Sequence[str], body: Sequence[Sequence[str]]) -> None:
    section.append(NoEscape(r"{\footnotesize\setlength{\tabcolsep}{4.5pt}"))
    with section.create(LongTable(spec, booktabs=True, width=len(header))) as long:
        long.add_row([NoEscape(rf"\textbf{{{h}}}") for h in header])
        long.add_hline()
        long.end_table_header()
        for row in body:
            long.add_row([NoEscape(cell) for cell in row])
    section.append(NoEscape("}"))
