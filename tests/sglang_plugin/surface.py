"""What a Python source takes from SGLang, and what SGLang's sources define, both by their syntax trees alone."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """`from module import name`."""

    module: str
    name: str


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8-sig"), str(path))


def imports(tree: ast.AST) -> list[Import]:
    """Every name imported from SGLang, wherever in the file."""
    return [
        Import(node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sglang.")
        for alias in node.names
    ]


def source(site: Path, module: str) -> Path:
    """The file of an `sglang.*` module; `site` is the folder of the package. Raises FileNotFoundError."""
    path = site.parent.joinpath(*module.split("."))
    for found in (path.with_suffix(".py"), path / "__init__.py"):
        if found.is_file():
            return found
    raise FileNotFoundError(f"{module} is no module of {site}")


def names(site: Path, module: str) -> set[str]:
    """Names that a module binds, under whatever conditions, its star imports followed."""
    path = source(site, module)
    tree, found = parse(path), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == "*" for alias in node.names):
            found |= names(site, node.module)
    return found | top_level(tree)


def top_level(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found


def definition(tree: ast.AST, dotted: str) -> ast.FunctionDef | ast.ClassDef:
    """The function or class `a.b` of a module. Raises LookupError."""
    node: ast.AST = tree
    for name in dotted.split("."):
        inside = [x for x in ast.walk(node) if isinstance(x, ast.FunctionDef | ast.ClassDef) and x.name == name]
        if not inside:
            raise LookupError(f"{dotted} is not defined")
        node = inside[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    return node


def parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    return [x.arg for x in (*given.posonlyargs, *given.args, *given.kwonlyargs) if x.arg not in ("self", "cls")]


def required(function: ast.FunctionDef) -> set[str]:
    given = function.args
    positional = [x.arg for x in (*given.posonlyargs, *given.args)]
    without = positional[: len(positional) - len(given.defaults)]
    without += [x.arg for x, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return {name for name in without if name not in ("self", "cls")}


def fields(cls: ast.ClassDef) -> dict[str, bool]:
    """Annotated fields of a dataclass, with whether each must be given."""
    return {
        x.target.id: x.value is None
        for x in cls.body
        if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)
    }


def attributes(tree: ast.AST) -> set[str]:
    """Names that are assigned as attributes, defined inside, or annotated as fields."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            target = node.target
            if isinstance(target, ast.Name):
                found.add(target.id)
            elif isinstance(target, ast.Attribute):
                found.add(target.attr)
        elif isinstance(node, ast.Assign):
            found |= {x.id for x in node.targets if isinstance(x, ast.Name)}
    return found


def uses(tree: ast.AST, chain: str) -> set[str]:
    """Attributes read from the expression `chain`, such as `batch` or `self.server_args`."""
    return {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == chain
    }


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """Calls of a function or method by its last name."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    ]
