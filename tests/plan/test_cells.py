"""The seal of a cell: edits are refused, a program that knows more fields still reads old cells."""

import json

import pytest

from ddtree.bench.records import Cell
from ddtree.cells import BadCell, read_cell, seal, write_cell


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "c1.json"
    cell = Cell(
        key="k",
        server="s",
        workload="w",
        concurrency=1,
        role="load",
        started_unix=1.5,
        seconds=1e-05,
        attempt=1,
        effective={"threads": 2},
        provenance={"text": "é\n"},
        runs=[],
    )
    write_cell(path, cell)
    return path


def test_a_cell_reads_back_as_it_was_written(written):
    cell = read_cell(written)
    assert (cell.seconds, cell.effective, cell.provenance) == (1e-05, {"threads": 2}, {"text": "é\n"})


def test_an_edited_cell_is_refused_by_name(written):
    written.write_text(written.read_text().replace('"attempt":1', '"attempt":2'))
    with pytest.raises(BadCell, match=r"c1\.json: the content does not match its seal"):
        read_cell(written)


@pytest.mark.parametrize("left", [0, 1, 40])
def test_a_truncated_cell_is_refused_by_name(written, left):
    written.write_bytes(written.read_bytes()[:left])
    with pytest.raises(BadCell, match=r"c1\.json: not a whole JSON file"):
        read_cell(written)


def test_a_cell_from_before_a_field_existed_is_sound(written):
    content = json.loads(written.read_text())
    del content["audits"]  # a field with a default, as one that a later version adds
    written.write_text(json.dumps(content | {"sha256": seal(content)}))
    assert read_cell(written).audits == []
