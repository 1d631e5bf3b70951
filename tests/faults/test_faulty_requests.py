"""A server that answers badly: what a cell makes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_bench import Bench

from ddtree.cells import read_cell

pytestmark = pytest.mark.slow
# What the server does -> the type of failure that is recorded.
TROUBLES = {
    "500": "HTTPStatus",
    "429": "HTTPStatus",
    "empty": "EmptyStream",
    "done": "OnlyDone",
    "cut": "Truncated",
    "malformed": "MalformedEvent",
    "reset": "ConnectionReset",
}


def test_a_server_that_hangs_in_a_cell_is_started_again_and_the_cell_repeated(
    bench: Bench, reshape: Callable[..., None]
) -> None:
    reshape(cell_timeout_s=3)
    bench.fault("request.tree.3", "hang")
    manifest = bench.run_session("tree")
    assert [start.ready for start in manifest.starts] == [True, True]
    assert read_cell(bench.folder / "results/small/cells/tree/other/c1.json").attempt == 2
    assert not bench.processes()


def test_a_cell_that_hangs_every_time_fails_with_the_servers_last_words(
    bench: Bench, reshape: Callable[..., None]
) -> None:
    reshape(cell_timeout_s=1)
    bench.fault("request.tree.2", "always hang")
    manifest = bench.run_session("tree")
    (status,) = manifest.cells.values()
    assert len(manifest.starts) == 2
    assert status.reason
    assert status.reason.category == "cell_timeout"
    assert "cell_timeout_s = 1" in status.reason.detail
    assert status.reason.log_tail
    assert not bench.cells()


def test_failed_requests_within_the_limit_are_counted_by_type(bench: Bench, reshape: Callable[..., None]) -> None:
    reshape(repeats=8, max_failure_rate=0.9)
    for number, trouble in enumerate(TROUBLES, start=6):
        bench.fault(f"request.tree.{number}", trouble)
    bench.run_session("tree")
    cell = read_cell(bench.folder / "results/small/cells/tree/other/c1.json")
    types = [request.failure.type for run in cell.runs for request in run.requests if request.failure]
    assert types == list(TROUBLES.values())
    assert cell.attempt == 1


def test_failed_requests_beyond_the_limit_leave_no_result(bench: Bench, reshape: Callable[..., None]) -> None:
    reshape(repeats=2, max_failure_rate=0.1)
    for number in range(1, 20):
        bench.fault(f"request.tree.{number}", "500")
    manifest = bench.run_session("tree")
    (status,) = manifest.cells.values()
    assert status.reason
    assert status.reason.category == "too_many_failures"
    assert status.reason.detail.startswith("4 of 4 requests failed (max_failure_rate 0.1): HTTPStatus")
    assert not bench.cells()
