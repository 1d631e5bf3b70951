"""Writing result files so that no reader ever sees half of one."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path


def write_atomically(path: Path, text: str, durable: bool = True) -> str:
    """Write `text` to `path` through a temporary neighbour, fsync (if `durable`) and rename; returns the content's
    sha256.

    The neighbour is its owner's alone and never somebody else's file or link; the result is as readable as any file.
    """
    data = text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    aside.unlink(missing_ok=True)  # of an earlier process with this id
    try:
        with aside.open("xb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)  # what the umask leaves
            os.fchmod(file.fileno(), mode & stat.S_IRWXU)
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write does not know its file
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)
    return hashlib.sha256(data).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_if_changed(path: Path, text: str) -> bool:
    """Write `text` unless the file already holds it, so that its time says when the content changed. A plan has
    thousands of such files, and any can be made again: nothing waits for the disk."""
    try:
        if path.read_text() == text:
            return False
    except OSError:
        pass
    write_atomically(path, text, durable=False)
    return True


def remove_leftovers(folder: Path) -> None:
    """Temporary files of writers that were killed. The caller holds the lock on everything below `folder`."""
    for leftover in folder.rglob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
