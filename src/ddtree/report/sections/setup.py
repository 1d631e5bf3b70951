"""Section 2: hardware, models, servers as they really ran, workloads."""

from __future__ import annotations

from collections import Counter

from pylatex import Document, Itemize, NoEscape, Section, Subsection

from ddtree.plan.schema import METHOD_KEYS, Source
from ddtree.report.context import Context, arm, number, paragraph, table
from ddtree.report.escape import escape

_SERVER_KEYS = {  # column -> what the engines call it
    "draft tokens": ("draft_tokens",),
    "verify width": ("verify_width", "speculative_num_draft_tokens"),
    "n-gram max": ("ngram_max", "speculative_ngram_max_trie_depth"),
    "budget": ("budget",),
    "top-k": ("topk",),
    "draft window": ("draft_window", "effective_draft_window"),
    "shadow": ("shadow",),
}
_COMMON_KEYS = (
    "engine", "version", "device", "dtype", "threads", "context_length", "max_running_requests", "attention_backend",
    "sampling_backend", "kv_cache_dtype", "page_size", "tp_size", "effective_kv_tokens", "effective_cuda_graph_max_bs",
    "chunked_prefill_size", "disable_radix_cache", "disable_overlap_schedule", "schedule_policy",
)  # fmt: skip
_FACTS = {  # provenance key -> label
    "machine.cpu": "CPU",
    "machine.cores_usable": "Usable cores",
    "machine.memory_gib": "Memory (GiB)",
    "machine.os": "Operating system",
    "engine.python": "Python (engine)",
    "engine.torch": "PyTorch",
    "engine.transformers": "Transformers",
    "ddtree": "ddtree-bench",
    "git.revision": "Revision",
    "git.dirty": "Uncommitted changes",
}


_GPU_FACTS = ("name", "memory.total", "driver_version")


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
    rows[:0] = _gpus(context)
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


def _gpus(context: Context) -> list[list[str]]:
    """A row per kind of GPU that was seen, with how many there are."""
    facts = context.tables["provenance"]
    kinds: Counter[str] = Counter()
    for key in sorted(set(facts["key"])):
        if key.startswith("gpus.") and key.endswith(".name"):
            own = [context.rows("provenance", key=key.removesuffix("name") + f) for f in _GPU_FACTS]
            kinds[", ".join(str(rows.iloc[0]["value"]) for rows in own if len(rows))] += 1
    return [["GPU", escape(f"{count} x {kind}", breakable=True)] for kind, count in kinds.items()]


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
    folder = escape(f"results/{context.plan.plan}/tables/settings.csv", breakable=True)
    paragraph(
        section,
        text + "Table~\\ref{tab:servers} lists what differs. Every setting, as asked for and as in force, is in "
        rf"\texttt{{{folder}}}.",
    )
    shown = {
        (server, column): next((v for k in keys if (v := effective.get((server, k), "")) not in ("", "False")), "")
        for server, look in context.looks.items()
        for column, keys in _SERVER_KEYS.items()
        if look.method in METHOD_KEYS.get(keys[0], {look.method})
    }
    columns = [column for column in _SERVER_KEYS if any(shown.get((s, column)) for s in measured)]
    body = []
    for server in context.looks:
        row = context.row("arms", server=server)
        status = "" if row is None else f"{row['status']} ({int(row['cells_measured'])}/{int(row['cells_planned'])})"
        body.append(
            [
                arm(server),
                escape(context.looks[server].method.replace("_", " ")),
                *(escape(shown.get((server, column), "")) or r"\missing{}" for column in columns),
                number(None if row is None else row["start_s"], 1),
                escape(status),
            ]
        )
    table(
        section,
        "ll" + "r" * len(columns) + "rl",
        ["Server", "Method", *columns, "Start (s)", "Cells"],
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
