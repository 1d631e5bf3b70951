"""docs/faults.md names for every fault the tests that inject it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "docs/faults.md").read_text().splitlines() if line.startswith("| ")][2:]


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def named() -> list[tuple[str, str]]:
    return [(file, test) for row in ROWS for file, test in re.findall(r"`([\w/]+\.py)::(\w+)`", row)]


def test_every_fault_has_a_test_and_every_named_test_exists() -> None:
    assert len(ROWS) >= 16
    assert [row for row in ROWS if "::" not in row] == []
    assert [(file, test) for file, test in named() if test not in functions_of(ROOT / "tests" / file)] == []


def test_every_test_of_this_folder_is_in_the_table() -> None:
    here = {
        (f"faults/{path.name}", test) for path in Path(__file__).parent.glob("test_*.py") for test in functions_of(path)
    }
    own = {(f"faults/{Path(__file__).name}", test) for test in functions_of(Path(__file__))}
    assert here - own <= set(named())
