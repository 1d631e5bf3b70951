"""Section 6: are the answers still right: greedy equality, coding verdicts, and the noise between equal runs."""

from __future__ import annotations

from pylatex import Document, NoEscape, Section, Subsection

from ddtree.quality.results import VERDICTS
from ddtree.report.context import Context, arm, interval, number, paragraph, table
from ddtree.report.escape import escape

_KIND = {"repeats": "", "sessions": ", another start"}
_CONTROL = {"arm": "", "repeats": ", its repeats", "concurrency": ", its concurrencies"}


def write(document: Document, context: Context) -> None:
    with document.create(Section("Correctness", label="sec:correctness")) as section:
        with section.create(Subsection("Greedy answers", label=False)):
            _lossless(section, context)
        with section.create(Subsection("Coding problems", label=False)):
            _coding(section, context)
        with section.create(Subsection("Equal runs", label=False)):
            _noise(section, context)
        section.append(NoEscape(r"\FloatBarrier"))


def _lossless(section: Section, context: Context) -> None:
    rows = context.rows("lossless", workload="all")
    if rows.empty:
        paragraph(section, "No greedy comparison is available, so nothing is known about whether answers are equal.")
        return
    paragraph(
        section,
        rf"Speculative decoding must not change a greedy answer. Each answer is compared with that of "
        rf"{arm(context.plan.baseline)} to the same input. Two tokens with almost the same probability may swap places "
        r"under another order of summation; so each first difference is judged by the baseline's own "
        r"log-probabilities: a \emph{tie} when the gap is below the threshold for the data type, otherwise "
        r"\emph{wrong}; an \emph{overrun} when the answer passes the end-of-text token at which the baseline's stopped "
        r"and ends at its token limit, a fault of the server's bookkeeping and not of decoding; \emph{open} when the "
        r"workload was not scored. The control rows compare a server "
        r"with itself and give the rate to expect.",
    )
    table(
        section,
        "lrrrrrrr",
        ["Server", "Compared", "Equal", "Tie", "Overrun", "Wrong", "Open", "Largest gap"],
        [
            [
                arm(str(r["server"])) + _CONTROL[str(r["comparison"])],
                *(number(r[c], 0) for c in ("compared", "identical", "tie", "overrun", "bug", "unscored")),
                number(r["largest_gap"], 4),
            ]
            for _, r in rows.iterrows()
        ],
        "Greedy answers against the baseline's, all workloads. Largest gap: between the two tokens at a first "
        "difference, in nats of the baseline's log-probability.",
        "lossless",
    )


def _coding(section: Section, context: Context) -> None:
    rows = context.tables["coding"]
    if rows.empty:
        paragraph(section, "No coding problem was graded; a quality workload of coding problems is missing or failed.")
        return
    paragraph(
        section,
        "Generated programs run against the tests of their problem in a sandbox, after all load cells. An answer cut "
        "off by the token limit is \\emph{truncated}, not wrong. With a lossless method the verdicts of all servers "
        "agree; the score itself is the model's.",
    )
    table(
        section,
        "lrrrrrrrr",
        ["Server", "$n$", *(v.replace("_", " ").capitalize() for v in VERDICTS), r"Pass rate (\%)"],
        [
            [
                arm(server),
                number(r["n"], 0),
                *(number(r[v], 0) for v in VERDICTS),
                rf"{number(r['rate'], 0, 100)} "
                rf"{{\footnotesize\color{{black!60}}[{r['low'] * 100:.0f}, {r['high'] * 100:.0f}]}}",
            ]
            for server in context.looks
            for _, r in rows[rows["server"] == server].iterrows()
        ],
        r"Verdicts on coding problems, with the 95\,\% Wilson interval of the pass rate.",
        "coding",
    )


def _noise(section: Section, context: Context) -> None:
    rows = context.rows("noise", metric="e2e", workload="all")
    rows = rows[rows["server"] != "all"]
    if rows.empty:
        paragraph(section, "No workload was repeated, so the noise between equal runs is not known.")
        return
    names = sorted(set(context.rows("noise", metric="e2e")["workload"]) - {"all"})
    paragraph(
        section,
        "A workload that runs twice on the same server should take the same time. How far the ratio of the two strays "
        "from 1 is the floor under every comparison above. A second server with the same settings, where the plan has "
        "one, shows what changes from one start to another. Repeated here: "
        + ", ".join(escape(n) for n in names)
        + ".",
    )
    table(
        section,
        "lrrrrl",
        ["Server", "Ratio of repeats", "Conversations", "Run pairs", r"Floor (\%)", "Verdict on the ratio"],
        [
            [
                arm(server) + _KIND[str(r["kind"])],
                interval(r),
                number(r["n"], 0),
                number(r["comparisons"], 0),
                number(r["floor"], 1, 100),
                escape(r["verdict"]),
            ]
            for server in context.looks
            for _, r in rows[rows["server"] == server].iterrows()
        ],
        r"Equal runs: time per output token of one repeat (or start) over that of the next, same answers, with "
        r"95\,\% intervals. Floor: the largest difference between two runs of one cell.",
        "noise",
    )
