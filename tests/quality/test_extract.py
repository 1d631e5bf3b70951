"""Programs found in answers: fences, plain code, bodies, and what the token limit cut off."""

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.quality.extract import Extraction, blocks, extract

PROMPT = 'from typing import List\n\n\ndef helper(x):\n    return x\n\n\ndef f(x: int) -> int:\n    """Adds one."""\n'
GOOD = "def f(x):\n    return x + 1\n"
BAD = "def f(x):\n    return x - 1\n"


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}```\n"


def found(text: str | None, cut: bool = False) -> Extraction:
    return extract(text, cut, PROMPT, "f")


def result(program: str, argument: int = 1) -> object:
    namespace: dict[str, object] = {}
    exec(program, namespace)
    return namespace["f"](argument)  # type: ignore[operator]


RIGHT = [
    fenced(GOOD),
    fenced(GOOD, "py"),
    fenced(GOOD, "Python3"),
    fenced(GOOD, ""),
    fenced(GOOD, " {.python}"),
    "~~~python\n" + GOOD + "~~~\n",
    "````python\n" + GOOD + "````\n",
    "Sure:\n\n" + fenced(GOOD) + "\nThis adds one.",
    "1. Do this:\n\n   ```python\n" + textwrap.indent(GOOD, "   ") + "   ```\n",
    fenced(BAD) + "No, wait.\n" + fenced(GOOD),
    fenced(GOOD) + "Use it:\n" + fenced("print(f(1))\n"),
    fenced(GOOD) + "Run it:\n" + fenced("python f.py\n", "bash"),
    "```python\n" + GOOD,  # the model stopped there by itself
    GOOD,
    "f = lambda x: x + 1\n",
    fenced("    return x + 1\n"),
    fenced("  y = x\n  return y + 1\n"),
    fenced("y = x\nreturn y + 1\n"),
    "    return x + 1\n",
    "    return x + 1\n\nThe function adds one.",
    fenced(GOOD).replace("\n", "\r\n"),
    "    if x:\n        return x + 1\n\n    return 1\n\n\nprint(f(1))",
    fenced(GOOD, 'python title="f.py"'),
    fenced(GOOD, "python3.11"),
    fenced("int f(int x) { return x - 1; }\n", "c++") + fenced(GOOD) + fenced("f <- function(x) x - 1\n", "r"),
    fenced('def f(x):\n    """\n    >>> f(1)\n    2\n    """\n    return helper(x) + 1\n'),
]


@pytest.mark.parametrize("text", RIGHT)
def test_the_program_is_found(text: str):
    extraction = found(text)
    assert (extraction.verdict, extraction.detail) == (None, "")
    assert result(extraction.program) == 2


def test_a_whole_function_keeps_the_prompts_imports_and_helpers():
    program = found(fenced("def f(x: List[int]):\n    return helper(x)\n")).program
    assert program.startswith("from typing import List\n")
    assert result(program, 5) == 5


def test_a_later_definition_wins_over_a_complete_earlier_one():
    assert result(found(fenced(GOOD) + fenced(BAD)).program) == 0


def test_a_syntax_error_is_a_wrong_answer_not_a_missing_one():
    extraction = found(fenced("def f(x:\n    return x\n"))
    assert extraction.verdict is None
    with pytest.raises(SyntaxError):
        ast.parse(extraction.program)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "the answer is empty"),
        (" \n\n", "the answer is empty"),
        ("I cannot do that.", "no code block and no plain code that defines f"),
        ("The function\ndef f(x) is unclear.", "no code block and no plain code that defines f"),
        (fenced("def g(x):\n    return x\n"), "no complete code block that defines f"),
        (fenced("print(f(1))\n"), "no complete code block that defines f"),
        (fenced(GOOD, "javascript"), "no complete code block that defines f"),
        (fenced("class A:\n    def f(self, x):\n        return x\n"), "no complete code block that defines f"),
        (None, "the thinking part does not end"),
        ("\0", "no code block and no plain code that defines f"),
    ],
)
def test_an_answer_without_code_says_so(text: str | None, detail: str):
    assert found(text) == Extraction(verdict="no_code", detail=detail)
    assert found(text, cut=True).verdict == "truncated"


@pytest.mark.parametrize(
    "text",
    [
        "```python\n" + GOOD,
        "```python\ndef f(x):\n",
        GOOD,
        "    y = x\n    return y",
        "return x + 1",
        "Let me see. ```python\nimport math\n",
        fenced("import math\n") + "```python\n" + GOOD,
    ],
)
def test_code_that_the_limit_may_have_cut_is_truncated(text: str):
    assert found(text, cut=True).verdict == "truncated"


@pytest.mark.parametrize(
    "text",
    [
        fenced(GOOD) + "This function adds",
        fenced(GOOD) + "```python\nprint(f(",
        "```python\n" + GOOD + "\nprint(f(",
        "```python\n" + GOOD + "\n@cache\ndef",
        GOOD + "\n\nassert f(1) == 2\nassert f(2",
        "    return x + 1\n\nThis function adds",
    ],
)
def test_a_cut_answer_counts_when_its_function_was_finished(text: str):
    assert result(found(text, cut=True).program) == 2


@given(st.text(alphabet="`~ \n\tpydef(x):return1", max_size=80), st.booleans())
def test_any_text_yields_a_program_or_a_verdict(text: str, cut: bool):
    extraction = found(text, cut)
    assert bool(extraction.program) != (extraction.verdict is not None)
    if extraction.verdict:
        assert extraction.verdict == ("truncated" if cut else "no_code")


code_lines = st.lists(st.text(alphabet="abc =():#'", max_size=8), max_size=6)


@given(st.lists(st.tuples(st.sampled_from(["", "python", "bash"]), code_lines), max_size=4))
def test_blocks_are_read_back_as_written(written: list[tuple[str, list[str]]]):
    text = "".join(f"text\n```{language}\n" + "".join(f"{x}\n" for x in lines) + "```\n" for language, lines in written)
    read = [(b.language, b.code, b.closed) for b in blocks(text)]
    assert read == [(language, "\n".join(lines), True) for language, lines in written]
