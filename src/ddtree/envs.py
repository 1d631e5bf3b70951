"""Engine environments: a uv venv per engine from its lock file, and the torch build that fits the machine.

Standard library only: `scripts/setup.sh` runs this before anything else is installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ddtree.redaction import redact


class EnvError(Exception):
    """An environment could not be built; the message names it and the command that failed."""


def uv() -> str:
    """The uv executable: beside this Python, else on PATH."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise EnvError("uv is not installed; run scripts/setup.sh")
    return found


def python(name: str, root: Path) -> Path:
    """Interpreter of environment `name`."""
    return root / ".envs" / name / "bin" / "python"


def run(command: Sequence[str], what: str, **env: str) -> None:
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise EnvError(f"{what}: `{' '.join(command)}` failed with status {done.returncode}\n{redact(last)}")


def torch_builds(requirement: str) -> list[tuple[list[str], dict[str, str]]]:
    """Ways to install torch, best first, as (uv arguments, environment).

    A GPU, or a platform whose ordinary build is small anyway, takes the package index's build. Elsewhere a CPU build
    saves gigabytes of CUDA: from a local wheel folder known to pip, else PyTorch's CPU index, else the ordinary build.
    """
    ordinary: tuple[list[str], dict[str, str]] = ([requirement], {})
    if has_gpu() or (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return [ordinary]
    folders = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS") or ""
    local = [([f"{requirement}+cpu"], {"UV_FIND_LINKS": folders})] if folders else []
    return [*local, (["--torch-backend=cpu", requirement], {}), ordinary]


def has_gpu() -> bool:
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def install_torch(interpreter: Path, requirement: str) -> None:
    """Install `requirement` (torch==X) unless that version is there already."""
    version = requirement.partition("==")[2]
    probe = f"import importlib.metadata as m; assert m.version('torch').split('+')[0] == '{version}'"
    if subprocess.run([str(interpreter), "-c", probe], capture_output=True).returncode == 0:
        return
    builds = torch_builds(requirement)
    for arguments, env in builds:
        try:
            run([uv(), "pip", "install", "-q", "--python", str(interpreter), *arguments], "torch", **env)
            return
        except EnvError as error:
            failure = error
    raise failure


def install(name: str, interpreter: Path, root: Path) -> None:
    """Install the lock of environment `name`, its torch if it names one, and this project, into `interpreter`."""
    folder = root / "envs" / name
    lock = folder / "requirements.lock"
    if not lock.exists():
        known = ", ".join(sorted(p.parent.name for p in root.glob("envs/*/requirements.lock")))
        raise EnvError(f"{lock.relative_to(root)} does not exist; environments: {known}")
    at = ["--python", str(interpreter)]
    run([uv(), "pip", "install", "-q", *at, "--require-hashes", "-r", str(lock)], f"environment {name}")
    torch = root / "envs" / "embedded" / "torch.in"
    if name in ("embedded", "dev"):
        install_torch(interpreter, torch.read_text().strip())
    run([uv(), "pip", "install", "-q", *at, "--no-deps", "-e", str(root)], f"environment {name}")


def build(name: str, root: Path) -> Path:
    """Build `.envs/<name>` afresh. The copied lock is written last: it says that the environment is complete."""
    folder = root / ".envs" / name
    shutil.rmtree(folder, ignore_errors=True)
    run([uv(), "venv", "-q", "--python", sys.executable, str(folder)], f"environment {name}")
    install(name, python(name, root), root)
    stamp = folder / "requirements.lock"
    shutil.copyfile(root / "envs" / name / "requirements.lock", stamp)
    return stamp


def main() -> None:
    """`python -m ddtree.envs NAME`: install environment NAME into the Python that runs this."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ddtree.envs driver|dev")
    try:
        install(sys.argv[1], Path(sys.executable), Path(__file__).resolve().parents[2])
    except EnvError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
