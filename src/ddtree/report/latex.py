"""The report as LaTeX source, and its compilation. The source compiles by itself with latexmk, without this package."""

from __future__ import annotations

import os
import re
import subprocess
from importlib import resources
from pathlib import Path

from pylatex import Document, NoEscape

from ddtree.plan.schema import Plan
from ddtree.redaction import without_secrets
from ddtree.report import style, tables
from ddtree.report.context import Context
from ddtree.report.escape import escape
from ddtree.report.macros import Macros
from ddtree.report.sections import appendix, correctness, draft, scaling, setup, summary, throughput

SECTIONS = (summary, setup, throughput, scaling, draft, correctness, appendix)
TIME_LIMIT_S = 300
PARANOID = {"openin_any": "p", "openout_any": "p", "shell_escape": "f"}  # TeX's own names, see texmf.cnf


class CompileError(Exception):
    """LaTeX failed: the decisive lines of its log."""


def write(plan: Plan, tables_dir: Path, out: Path) -> Path:
    """Writes out/ddtree.tex and out/data/macros.tex; the figures are those of `figures.write` in the same folder."""
    looks = style.styles(plan)
    context = Context(plan=plan, tables=tables.read(tables_dir), looks=looks, macros=Macros(), folder=out)
    document = Document(
        documentclass="article", document_options="11pt,a4paper", inputenc=None, textcomp=False, indent=True
    )
    preamble = resources.files("ddtree.report").joinpath("templates/preamble.tex").read_text()
    for text in (preamble, style.definitions(list(looks.values())), r"\input{data/macros.tex}"):
        document.preamble.append(NoEscape(text))
    document.append(NoEscape(_title(context)))
    for section in SECTIONS:
        section.write(document, context)
    (out / "data").mkdir(parents=True, exist_ok=True)
    context.macros.write(out / "data" / "macros.tex")
    target = out / "ddtree.tex"
    target.write_text(document.dumps() + "\n", encoding="utf-8")
    return target


def _title(context: Context) -> str:
    """Title, plan, and when it was measured."""
    days = sorted({str(value)[:10] for value in context.rows("provenance", key="started")["value"]})
    when = f", measured {' to '.join(dict.fromkeys([days[0], days[-1]]))}" if days else ""
    plan = context.plan
    return (
        rf"{{\raggedright{{\LARGE\bfseries {escape(plan.title)}\par}}\smallskip"
        rf"{{\color{{black!65}}ddtree-bench, plan \texttt{{{escape(plan.plan)}}}{escape(when)}\par}}}}"
    )


def compile(tex: Path, log: Path | None = None) -> Path:
    """Runs latexmk beside `tex`; returns the PDF. Raises CompileError with a short message.

    Whatever the source says, it runs no program and opens no file outside its folder but TeX's own.
    """
    # -norc: a latexmkrc beside the report would be a program.
    command = ["latexmk", "-norc", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", tex.name]
    environment = without_secrets(os.environ) | PARANOID | {"max_print_line": "1000", "SOURCE_DATE_EPOCH": "0"}
    try:
        done = subprocess.run(
            command,
            cwd=tex.parent,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=TIME_LIMIT_S,
        )
    except FileNotFoundError:
        raise CompileError("latexmk is not installed; scripts/setup.sh installs it") from None
    except subprocess.TimeoutExpired:
        raise CompileError(f"{tex}: latexmk took longer than {TIME_LIMIT_S} s") from None
    output = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output, encoding="utf-8")
    pdf = tex.with_suffix(".pdf")
    if done.returncode != 0 or not pdf.exists():
        raise CompileError(f"{tex}: LaTeX failed\n{decisive(output)}" + (f"\n(all of it: {log})" if log else ""))
    return pdf


def decisive(output: str) -> str:
    """The lines of a LaTeX log that say what went wrong: each error and the source line below it."""
    lines = output.splitlines()
    picked: list[str] = []
    for i, line in enumerate(lines):
        if line.startswith("! ") or re.match(r"\S+\.tex:\d+: ", line):
            picked.append(line)
            picked += [follow for follow in lines[i + 1 : i + 12] if re.match(r"l\.\d+", follow)][:1]
    unique = list(dict.fromkeys(line[:200] for line in picked))
    return "\n".join(unique[:6] or lines[-5:])
