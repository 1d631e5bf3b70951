"""Section 2: hardware, models, servers as they really ran, workloads."""

from __future__ import annotations

from pylatex import Document, Itemize, NoEscape, Section, Subsection

from ddtree.plan.schema import Source
from ddtree.report.context import Context, arm, number, paragraph, table
from ddtree.report.escape import escape

_SERVER_KEYS = ("draft_tokens", "ngram_max", "budget", "topk", "draft_window", "shadow")
_COMMON_KEYS = ("engine", "version", "device", "dtype", "threads", "context_length", "max_running_requests")
_FACTS = {  # provenance key -> label
    "machine.cpu": "CPU",
    "machine.cores_usable": "Usable cores",
    "machine.memory_gib": "Memory (GiB)",
    "machine.os": "Operating system",
    "gpus": "GPUs",
    "engine.python": "Python (engine)",
    "engine.torch": "PyTorch",
    "ddtree": "ddtree-bench",
    "git.revision": "Revision",
    "git.dirty": "Uncommitted changes",
}


def write(document: Document, context: Context) -> None:
    with document.create(Section("Set-up", label=False)) as section:
        with section.create(Subsection("Machine and models", label=False)):
            _machine(section, context)
        with section.create(Subsection("Servers", label=False)):
            _servers(section, context)
        with section.create(Subsection("Workloads", label=False)):
            _workloads(section, context)
        section.append(NoEscape(r"\FloatBarrier"))


def _machine(section: Section, context: Context) -> None:
    paragraph(section, "Table~\\ref{tab:machine} names what was measured on what.")
    rows = []
    for key, label in _FACTS.items():
        values = list(dict.fromkeys(context.rows("provenance", key=key)["value"]))
        if values and any(values):
            rows.append([label, escape("; ".join(values), breakable=True, limit=240)])
    for name, model in context.plan.models.items():
        rows.append([f"Target of {escape(name)}", _source(model.target)])
        rows.append([f"Drafter of {escape(name)}", _source(model.drafter) if model.drafter else "none"])
    table(
        section,
        r"l>{\raggedright\arraybackslash}p{0.66\textwidth}",
        ["Fact", "Value"],
        rows,
        "Machine, software and models. All recorded facts are in the appendix.",
        "machine",
    )


def _source(source: Source) -> str:
    kind, value = next((k, v) for k in ("package", "path", "hub") if (v := getattr(source, k)))
    revision = f" at {source.revision}" if source.revision else ""
    label = {"package": "Python package", "path": "folder", "hub": "Hugging Face"}[kind]
    return rf"{label} \texttt{{{escape(value + revision, breakable=True)}}}"


def _servers(section: Section, context: Context) -> None:
    settings = context.tables["settings"]
    effective = {(r["server"], r["key"]): str(r["effective"]) for _, r in settings.iterrows() if r["effective"]}
    measured = context.measured()
    common = []
    for key in _COMMON_KEYS:
        values = sorted({effective.get((s, key), "") for s in measured} - {""})
        if len(values) == 1:
            common.append(rf"{escape(key.replace('_', ' '))} \texttt{{{escape(values[0])}}}")
    text = "Each server is started once and measured alone on the machine. "
    if common:
        text += "Effective in every one, as the running process reports it: " + ", ".join(common) + ". "
    paragraph(section, text + "Table~\\ref{tab:servers} lists what differs.")
    keys = [k for k in _SERVER_KEYS if any(effective.get((s, k), "") not in ("", "False") for s in measured)]
    body = []
    for server in context.looks:
        row = context.row("arms", server=server)
        status = "" if row is None else f"{row['status']} ({int(row['cells_measured'])}/{int(row['cells_planned'])})"
        values = [effective.get((server, k), "") for k in keys]
        body.append(
            [
                arm(server),
                escape(context.looks[server].method.replace("_", " ")),
                *(escape(v) if v and v != "False" else r"\missing{}" for v in values),
                number(None if row is None else row["start_s"], 1),
                escape(status),
            ]
        )
    table(
        section,
        "ll" + "r" * len(keys) + "rl",
        ["Server", "Method", *(escape(k.replace("_", " ")) for k in keys), "Start (s)", "Cells"],
        body,
        r"Servers with their effective configuration and how many of their cells were measured. \textendash: not "
        "applicable, default, or not known because the server never ran.",
        "servers",
    )


def _workloads(section: Section, context: Context) -> None:
    rows = context.tables["workloads"]
    paragraph(section, "Table~\\ref{tab:workloads} gives the shape of every workload and the lengths really seen.")
    table(
        section,
        "llrrrrrr",
        ["Workload", "Source", "Prompts", "Turns", "Repeats", "Input tokens", "Output tokens", "Conc."],
        [
            [
                escape(r["workload"]) + (r"\,*" if r["role"] == "quality" else ""),
                escape(r["source"]),
                str(r["prompts"]),
                str(r["turns"]),
                str(r["repeats"]),
                _span(r["input_tokens_min"], r["input_tokens_max"]),
                number(r["output_tokens_mean"], 0),
                escape(r["concurrency"]).replace(" ", ", "),
            ]
            for _, r in rows.iterrows()
        ],
        rf"Workloads as {arm(context.plan.baseline)} saw them: range of prompt lengths and mean output length in "
        rf"tokens. "
        r"*: feeds the correctness section only, never a speed.",
        "workloads",
    )
    origins = rows[rows["origin"] != ""]
    if len(origins):
        paragraph(section, "Where the prompts come from:")
        with section.create(Itemize()) as items:
            for origin, group in origins.groupby("origin", sort=False):
                names = ", ".join(rf"\textit{{{escape(w)}}}" for w in group["workload"])
                items.add_item(NoEscape(rf"\raggedright {names}: {escape(origin, breakable=True, limit=300)}"))


def _span(low: object, high: object) -> str:
    if number(low, 0) == number(high, 0):
        return number(low, 0)
    return rf"{number(low, 0)}\,--\,{number(high, 0)}"
