"""What was asked for against what the server says it runs with."""

from __future__ import annotations

from collections.abc import Mapping

MISSING = "nothing"


def comparable(also: Mapping[str, object], info: Mapping[str, object]) -> dict[str, object]:
    """The part of `also` that can be compared: not what was left open ("auto"), what the server does not report under
    that name (a deprecated spelling), or what it reports as an object (a JSON text that was parsed)."""
    return {k: v for k, v in also.items() if v != "auto" and k in info and not isinstance(info[k], dict)}


def differences(asked: Mapping[str, object], info: Mapping[str, object]) -> list[str]:
    """One line per setting that is not in force as asked, naming key and both values. Settings nobody asked for are
    the engine's own business; a key that the server does not report cannot be trusted and counts as a difference."""
    found = []
    for key, wanted in asked.items():
        actual = info.get(key, MISSING)
        # True == 1 in Python, but a flag is no number.
        if actual != wanted or isinstance(actual, bool) != isinstance(wanted, bool):
            found.append(f"{key}: asked for {wanted!r}, the server runs with {actual!r}")
    return found
