import re
import string

from hypothesis import given
from hypothesis import strategies as st

from ddtree.report.escape import escape

WORDS = {
    r"\textbackslash{}": "\\",
    r"\textasciicircum{}": "^",
    r"\textasciitilde{}": "~",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\textquotedbl{}": '"',
    r"\textquotesingle{}": "'",
    r"\textasciigrave{}": "`",
    r"\allowbreak{}": "",
    "-{}": "-",
    ",{}": ",",
    "{[}": "[",
    "{]}": "]",
    **{"\\" + c: c for c in "{}$&#%_"},
}
TOKEN = re.compile("|".join(sorted(map(re.escape, WORDS), key=len, reverse=True)) + "|.", re.DOTALL)


def typeset(latex: str) -> str:
    """What TeX would print of `latex`, for the constructs that escape() may use on ASCII text."""
    return "".join(WORDS.get(token, token) for token in TOKEN.findall(latex))


@given(st.text(alphabet=[chr(c) for c in range(32, 127)]), st.booleans())
def test_printable_text_is_typeset_unchanged(text: str, breakable: bool) -> None:
    assert typeset(escape(text, breakable=breakable)) == text


@given(st.text(), st.booleans())
def test_any_text_is_ascii_on_one_line_with_nothing_left_to_interpret(text: str, breakable: bool) -> None:
    latex = escape(text, breakable=breakable)
    assert latex.isascii()
    assert all(" " <= c <= "~" for c in latex)
    bare = re.sub(r"\\[`'^~\"rc](?=\{[A-Za-z]\})", "", latex)
    bare = TOKEN.sub(lambda m: "" if m[0] in WORDS else m[0], bare)
    bare = re.sub(r"\\(texttimes|textmu|ldots|textendash|textemdash)\{\}|\{[A-Za-z]\}", "", bare)
    assert not set(bare) & set("\\{}$&#%_^~")
    depth = 0
    for token in re.findall(r"\\.|[{}]", latex):
        depth += {"{": 1, "}": -1}.get(token, 0)
        assert depth >= 0
    assert depth == 0


@given(st.text(alphabet=string.ascii_letters + string.digits, min_size=40, max_size=200))
def test_a_long_word_can_be_broken(text: str) -> None:
    assert max(len(piece) for piece in escape(text, breakable=True).split(r"\allowbreak{}")) <= 12


def test_limit_cuts_with_an_ellipsis() -> None:
    assert escape("abcdef", limit=4) == r"abc\ldots{}"


def test_accents_survive_and_other_scripts_become_code_points() -> None:
    assert escape("é") == r"\'{e}"
    assert escape("中\x07") == r"\textless{}U+4E2D\textgreater{}\textless{}U+0007\textgreater{}"
