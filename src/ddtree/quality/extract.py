"""Finds the program in an answer to "complete this function".

An answer is cut when the token limit ended it. A block or function that a cut answer had not finished never counts: it
might have gone on.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

PYTHON = {"", "python", "python3", "py", "py3", "ipython", "ipython3"}
FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)[^`]*$")


@dataclass(frozen=True)
class Extraction:
    """A whole program that defines the entry point, or why there is none."""

    program: str = ""
    verdict: Literal["truncated", "no_code"] | None = None
    detail: str = ""


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    closed: bool


def extract(text: str | None, cut: bool, prompt: str, entry_point: str) -> Extraction:
    """The last program of `text` that defines `entry_point` by itself or by continuing `prompt`'s unfinished function.

    `text` is the answer without thoughts (which often contain drafts of the code); None if it is nothing but thoughts.
    """
    missing: Literal["truncated", "no_code"] = "truncated" if cut else "no_code"
    if text is None:
        return Extraction(verdict=missing, detail="the thinking part does not end")
    text = text.replace("\r\n", "\n")
    if not text.strip():
        return Extraction(verdict=missing, detail="the answer is empty")

    found = blocks(text)
    python = [block for block in found if block.language in PYTHON]
    finished = [block.code for block in python if block.closed or not cut]
    unfinished = [block.code for block in python if cut and not block.closed]
    if not found:
        (unfinished if cut else finished).append(text)
    functions = finished if found else [code for code in finished if _parse(code)]  # prose may quote the function
    program = (
        _first(_with_function(code, prompt, entry_point) for code in reversed(functions))
        or _first(_with_body(code, prompt, entry_point, cut=False) for code in reversed(finished))
        or _first(_with_function(_settled(code), prompt, entry_point) for code in unfinished)
        or _first(_with_body(code, prompt, entry_point, cut=True) for code in unfinished)
    )
    if program:
        return Extraction(program)
    what = "no complete code block" if found else "no code block and no plain code"
    return Extraction(verdict=missing, detail=f"{what} that defines {entry_point}")


def blocks(text: str) -> list[Block]:
    """Fenced blocks in order; the last one may not be closed. A block's own indentation is removed."""
    result: list[Block] = []
    opening: tuple[str, str, str] | None = None  # indentation, fence, language
    lines: list[str] = []
    for line in text.split("\n"):
        match = FENCE.match(line)
        if opening is None:
            if match:
                opening, lines = (match[1], match[2], match[3].lower()), []
        elif match and match[2].startswith(opening[1]) and not match[3]:
            result.append(Block(opening[2], "\n".join(lines), closed=True))
            opening = None
        else:
            lines.append(line.removeprefix(opening[0]))
    if opening is not None:
        result.append(Block(opening[2], "\n".join(lines), closed=False))
    return result


def _with_function(code: str, prompt: str, entry_point: str) -> str:
    """What the prompt has before its function (imports, helpers), then `code`; empty if `code` does not define it.

    Code with a syntax error counts as long as it says `def entry_point`: it is a wrong answer, not a missing one.
    """
    tree = _parse(code)
    said = re.compile(rf"^(async\s+)?def\s+{re.escape(entry_point)}\b", re.MULTILINE)
    if not (_defines(tree, entry_point) if tree else said.search(code)):
        return ""
    place = said.search(prompt)
    return (prompt[: place.start()] if place else "") + code


def _with_body(code: str, prompt: str, entry_point: str, cut: bool) -> str:
    """The prompt's function continued by `code`, up to where its indentation ends; empty if that is no function.

    A cut body counts only if something less indented follows it. A body without indentation must return something.
    """
    lines = code.strip("\n").split("\n")
    if not lines or not lines[0].strip():
        return ""
    if lines[0][0] in " \t":
        end = next((i for i, line in enumerate(lines) if line.strip() and line[0] not in " \t"), None)
        if cut and end is None:
            return ""
        body = textwrap.dedent("\n".join(lines[:end]))
    else:
        body = code
        if cut or not _returns(body):
            return ""
    program = prompt.rstrip() + "\n" + textwrap.indent(body, "    ") + "\n"
    tree = _parse(program)
    function = _function(tree, entry_point) if tree else None
    if function is None or len(function.body) < 2:  # only the prompt's docstring
        return ""
    return program


def _settled(code: str) -> str:
    """The top-level statements of cut code that were surely finished: those that something unindented follows."""
    lines = code.split("\n")
    kept = next((n for n in range(len(lines), 0, -1) if _parse("\n".join(lines[:n])) is not None), 0)
    followed = any(line.strip() and line[0] not in " \t)]}" for line in lines[kept:])
    tree = ast.parse("\n".join(lines[:kept]))
    if tree.body and not followed:
        last = tree.body[-1]
        kept = min(node.lineno for node in [last, *getattr(last, "decorator_list", [])]) - 1
    return "\n".join(lines[:kept]) + "\n"


def _parse(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last three: null bytes, absurd nesting
        return None


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return next((node for node in reversed(functions) if node.name == name), None)


def _defines(tree: ast.Module, name: str) -> bool:
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return _function(tree, name) is not None or any(isinstance(t, ast.Name) and t.id == name for t in assigned)


def _returns(body: str) -> bool:
    """Whether `body`, taken as a function's, returns or yields something itself."""
    tree = _parse(body)
    todo: list[ast.AST] = list(tree.body) if tree else []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return False


def _first(programs: Iterable[str]) -> str:
    return next((program for program in programs if program), "")
