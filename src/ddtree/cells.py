"""The store of measured cells: sealed on writing, checked on reading. Anything doubtful is refused by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from ddtree.bench.records import SCHEMA, Cell
from ddtree.files import write_atomically


class BadCell(Exception):
    """A cell file that does not count as a result; the message names it and why."""


def seal(content: Mapping[str, object]) -> str:
    """sha256 of a cell as it is stored, its own seal left out; a field that a later program adds does not break it."""
    bare = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_cell(path: Path, cell: Cell) -> str:
    """Seal and write; returns the file's sha256."""
    content = cell.model_dump(mode="json")
    return write_atomically(path, json.dumps(content | {"sha256": seal(content)}, separators=(",", ":")) + "\n")


def read_cell(path: Path) -> Cell:
    """The cell at `path`. Raises BadCell when the file is absent, truncated, of another schema version or edited."""
    try:
        content = json.loads(path.read_bytes())
        cell = Cell.model_validate(content)
    except OSError as error:
        raise BadCell(f"{path}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadCell(f"{path}: not a whole JSON file: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise BadCell(f"{path}: {where}: {first['msg']}") from None
    if cell.schema_version != SCHEMA:
        raise BadCell(f"{path}: schema version {cell.schema_version}, this program reads {SCHEMA}")
    if cell.sha256 != seal(content):
        raise BadCell(f"{path}: the content does not match its seal: edited after it was measured")
    return cell


def has_result(path: Path, key: str) -> bool:
    """Whether `path` holds a sound cell with this key."""
    try:
        return read_cell(path).key == key
    except BadCell:
        return False
