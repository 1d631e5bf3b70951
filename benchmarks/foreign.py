"""Another load client, run as a subprocess."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from agreement import BadResult


def run_logged(command: Sequence[str], log: Path, environment: Mapping[str, str], timeout_s: float) -> None:
    """Output and errors go to `log`. BadResult, with the program's last words, when it does not end well in time."""
    program = command[0]
    with open(log, "w+") as file:
        try:
            done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, timeout=timeout_s)
        except OSError as error:
            raise BadResult(f"{program}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise BadResult(f"{program}: not finished within {timeout_s:g} s") from None
        file.seek(0)
        words = [line for line in file.read().splitlines() if line.strip()]
    if done.returncode:
        raise BadResult(f"{program}: exit status {done.returncode}; {words[-1] if words else 'no output'}")
