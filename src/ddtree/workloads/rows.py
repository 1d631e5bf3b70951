"""Rows of a data set's file: Parquet, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ddtree.workloads.draft import Draft, WorkloadError, user


def rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """`columns` of every row. Raises WorkloadError, one line with the file's name, for anything else."""
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path, columns)
        elif path.suffix == ".jsonl":
            yield from _json_lines(path, columns)
        else:
            raise WorkloadError(f"{path}: of no known form; allowed: .parquet, .jsonl")
    except OSError as e:
        raise WorkloadError(f"{path}: cannot be read: {e.strerror or e}") from None


def questions(path: Path, prefix: str) -> list[Draft]:
    """Drafts of a file in MT-Bench's form: question_id, category, and the user's turns."""
    return [
        Draft(f"{prefix}-{row['question_id']}", row["category"], (user(row["turns"][0]),), tuple(row["turns"][1:]))
        for row in rows(path, ("question_id", "category", "turns"))
    ]


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check(f"{path}", columns, file.schema_arrow.names)
            for batch in file.iter_batches(columns=list(columns)):
                yield from batch.to_pylist()
    except pyarrow.ArrowInvalid as e:
        raise WorkloadError(f"{path}: not a Parquet file: {str(e).splitlines()[0]}") from None


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as e:
                raise WorkloadError(f"{path}, line {number}: not JSON: {e}") from None
            if not isinstance(row, dict):
                raise WorkloadError(f"{path}, line {number}: not a JSON object")
            _check(f"{path}, line {number}", columns, list(row))
            yield {column: row[column] for column in columns}


def _check(where: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    for column in wanted:
        if column not in found:
            raise WorkloadError(f"{where}: no column {column}; found: {', '.join(found)}")
