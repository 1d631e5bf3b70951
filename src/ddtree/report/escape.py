"""The one place where outside text (names, log lines, model output) becomes LaTeX."""

from __future__ import annotations

import unicodedata

# Everything that TeX reads as markup, or that T1 fonts turn into a ligature or another glyph.
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": r"-{}",  # keeps -- from becoming a dash
    ",": r",{}",
    "[": r"{[}",  # keeps a text that opens with [ from being read as an optional argument
    "]": r"{]}",
    "×": r"\texttimes{}",
    "µ": r"\textmu{}",
    "…": r"\ldots{}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
}
_BREAK_AFTER = "/_-.=,:;"


def escape(text: object, *, breakable: bool = False, limit: int | None = None) -> str:
    """LaTeX that typesets `text` literally, on one line, in any context except verbatim.

    White space and line ends become one space each; other control characters and characters that the font may lack
    are written as their code point, e.g. ``<U+4E2D>``. `breakable` permits line breaks inside paths and flags and
    within long words; `limit` cuts after that many characters.
    """
    plain = str(text)
    if limit is not None and len(plain) > limit:
        plain = plain[: limit - 1] + "…"
    pieces = []
    run = 0  # characters since the last point where the line may break
    for char in plain:
        piece = _one(char)
        pieces.append(piece)
        run = 0 if char.isspace() else run + (8 if "U+" in piece else 1)
        if breakable and (char in _BREAK_AFTER or run >= 12):
            pieces.append(r"\allowbreak{}")
            run = 0
    return "".join(pieces)


def _one(char: str) -> str:
    if char in _SPECIAL:
        return _SPECIAL[char]
    if " " <= char <= "~":
        return char
    if char.isspace():
        return " "
    if "\u00a1" <= char <= "\u017e" and unicodedata.category(char) in ("Ll", "Lu"):
        base = unicodedata.normalize("NFD", char)
        if len(base) == 2 and base[0].isascii() and base[1] in _ACCENTS:
            return rf"\{_ACCENTS[base[1]]}{{{base[0]}}}"
    return rf"\textless{{}}U+{ord(char):04X}\textgreater{{}}"


_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030a": "r", "\u0327": "c"}
