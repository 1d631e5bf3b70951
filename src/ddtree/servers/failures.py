"""Why a server failed, from its log."""

from __future__ import annotations

import re

from ddtree.bench.records import Reason
from ddtree.redaction import redact

TAIL_LINES, LINES_AFTER, LINE_CHARS = 15, 3, 300
# Said once, these are final even while the process lingers (a worker died, its parent waits for it).
_MEMORY = (
    r"OutOfMemoryError|CUDA (error: )?out of memory|can't allocate memory|std::bad_alloc|^\w*Error: Not enough memory"
)
# SGLang's parent says the last one after a worker has logged its exception.
FATAL = re.compile(_MEMORY + r"|Received sigquit from a child process", re.I | re.M)
# Below such a line stands the exception that ended one of SGLang's processes; what came before did not.
_RAISING = re.compile(r"hit an exception: Traceback")
# The first category with a matching line wins; its last matching line is the decisive one.
CATEGORIES = {
    "out_of_memory": re.compile(
        _MEMORY + r"|\bMemoryError\b|Cannot allocate memory|(runs|Prefill|Decode) out of memory", re.I
    ),
    "missing_model": re.compile(
        r"FileNotFoundError|No such file or directory|does not exist|RepositoryNotFoundError"
        r"|not a valid model identifier|not found: .*(model|config\.json|safetensors)|no \S*(config\.json|safetensors)",
        re.I,
    ),
    "bad_flag": re.compile(
        r"unrecognized arguments|invalid choice|arguments are required|expected (one|at least one) argument"
        r"|error: argument --?\w|no such option|^(Value|Assertion)Error: .*--[a-z]+-[a-z]",
        re.I,
    ),
    "port": re.compile(r"address already in use|EADDRINUSE|port \d* ?is already in use", re.I),
    "gpus": re.compile(r"invalid device ordinal|No CUDA GPUs are available"),
    "nccl": re.compile(
        r"NCCL error|Dist(Backend|Store|Network)Error|nccl(UnhandledCuda|System|Internal|Remote)Error|ncclInvalid"
    ),
    "import_error": re.compile(r"^(ModuleNotFoundError|ImportError): "),
}
_RAISED = re.compile(r"^(\w+\.)*\w*(Error|Exception|Interrupt|Exit)\b|\berror: |\bfatal\b", re.I)
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def lines(text: str) -> list[str]:
    """The log's non-empty lines without secrets, colours and control characters, cut to a readable length."""
    plain = "".join(c if c in "\n\t" or c.isprintable() else "\n" for c in _COLOUR.sub("", redact(text)))
    return [line.rstrip()[:LINE_CHARS] for line in plain.splitlines() if line.strip()]


def classify(text: str, fallback: str, note: str) -> Reason:
    """The reason that the log gives; without a telling line, category `fallback`. `note` says how it showed."""
    whole = lines(text)
    spoken = [line for line in whole if not line.startswith("guard: starting")]

    def reason(category: str, decisive: str) -> Reason:
        return Reason(category=category, detail=f"{decisive.strip()} ({note})", log_tail=_around(decisive, spoken))

    # Only the end counts: a warning at the top of a long log did not end the server.
    recent = [line for line in spoken if not line.startswith("guard: ")][-200:]
    raising = [i for i, line in enumerate(recent) if _RAISING.search(line)]
    recent = recent[raising[0] :] if raising else recent
    for category, pattern in CATEGORIES.items():
        if matching := [line for line in recent if pattern.search(line)]:
            return reason(category, matching[-1])
    raised = [line for line in recent if _RAISED.search(line)]
    if raised or recent:
        return reason(fallback, (raised or recent)[-1])
    return Reason(category=fallback, detail=note, log_tail=spoken[-TAIL_LINES:])


def _around(decisive: str, spoken: list[str]) -> list[str]:
    """What led to the decisive line, the line, and a little of what came after it."""
    last = max(i for i, line in enumerate(spoken) if line == decisive)
    end = min(len(spoken), last + 1 + LINES_AFTER)
    return spoken[max(0, end - TAIL_LINES) : end]
