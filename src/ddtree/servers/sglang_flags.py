"""Which command-line flags an SGLang knows: as recorded for the release, and as the installed one says itself.

argparse takes any unambiguous beginning of a flag for the flag, so a misspelt one may silently mean another; only
whole names are accepted here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from ddtree.servers import leases

HELP_S = 180.0
_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"


@functools.cache
def recorded(release: str) -> frozenset[str]:
    """Flags of a release, as scripts/sglang_flags.py read them from its wheel."""
    text = resources.files("ddtree.servers").joinpath("data", f"sglang-{release}.json").read_text()
    return frozenset(json.loads(text)["flags"])


def unknown(flags: Iterable[str], release: str, python: Path, variables: Mapping[str, str]) -> str | None:
    """The first of `flags` that the release or the SGLang beside `python` does not know, in words; None if all is well.

    `variables` go into the environment of the questions, as they go into the server's.
    """
    flags = list(flags)
    if found := _missing(flags, recorded(release), f"sglang {release}"):
        return found
    try:
        return _missing(flags, installed(python, tuple(sorted(variables.items()))), f"the SGLang of {python}")
    except (OSError, subprocess.SubprocessError) as error:
        return f"{python}: cannot tell its flags: {_why(error)}"


@functools.cache
def installed(python: Path, variables: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """Flags in the help of `python -m sglang.launch_server`. That takes some 15 s, so the answer is kept on this host
    for as long as interpreter, variables and version stay the same. Raises OSError or SubprocessError."""
    environment = os.environ | dict(variables)
    version = _output([str(python), "-c", _VERSION], environment).strip()
    key = hashlib.sha256(json.dumps([str(python), variables, version]).encode()).hexdigest()[:16]
    path = leases.directory() / f"sglang-flags-{key}.json"
    if path.exists():
        return frozenset(json.loads(path.read_text()))
    flags = parse_help(_output([str(python), "-m", "sglang.launch_server", "--help"], environment))
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps(sorted(flags)))
    aside.replace(path)
    return flags


def parse_help(text: str) -> frozenset[str]:
    """Every flag that an argparse help text names at the beginning of an entry or in its usage."""
    return frozenset(re.findall(r"(?<![\w-])--[a-z0-9][a-z0-9-]*", text))


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HELP_S, check=True)
    return done.stdout


def _missing(flags: list[str], known: frozenset[str], whose: str) -> str | None:
    for flag in flags:
        if flag not in known:
            close = get_close_matches(flag, known, 1)
            return f"{flag} is no flag of {whose}" + (f"; did you mean {close[0]}?" if close else "")
    return None


def _why(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    return str(said).strip().splitlines()[-1] if said and str(said).strip() else str(error)
