"""The store of measured cells: sealed on writing, checked on reading. Anything doubtful is refused by name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from ddtree.bench.records import SCHEMA, Cell
from ddtree.files import write_atomically


class BadCell(Exception):
    """A cell file that does not count as a result; the message names it and why."""


def seal(cell: Cell) -> Cell:
    """The cell with the sha256 of everything else in it."""
    bare = cell.model_copy(update={"sha256": ""})
    return bare.model_copy(update={"sha256": hashlib.sha256(bare.model_dump_json().encode()).hexdigest()})


def write_cell(path: Path, cell: Cell) -> str:
    """Seal and write; returns the file's sha256."""
    return write_atomically(path, seal(cell).model_dump_json() + "\n")


def read_cell(path: Path) -> Cell:
    """The cell at `path`. Raises BadCell when the file is absent, truncated, of another schema version or edited."""
    try:
        cell = Cell.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadCell(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise BadCell(f"{path}: {where}: {first['msg']}") from None
    if cell.schema_version != SCHEMA:
        raise BadCell(f"{path}: schema version {cell.schema_version}, this program reads {SCHEMA}")
    if cell.sha256 != seal(cell).sha256:
        raise BadCell(f"{path}: the content does not match its seal: edited after it was measured")
    return cell


def has_result(path: Path, key: str) -> bool:
    """Whether `path` holds a sound cell with this key."""
    try:
        return read_cell(path).key == key
    except BadCell:
        return False
