"""The benchmark's two sides, small: the client's records against the mock server's account."""

import asyncio

import pytest
from agreement import BadResult
from client_load import both_sides, described, load, mock_server, prompts

from ddtree.bench.records import ClientHealth, Failure, Request, Run
from ddtree.plan.schema import Workload


def run(*chunks: tuple[float, int], failure: Failure | None = None) -> Run:
    request = Request(
        conversation="a", turn=0, input_tokens=1, sent_s=0, chunks=list(chunks), done_s=9, finish_reason="length",
        failure=failure,
    )  # fmt: skip
    health = ClientHealth(loop_lag_max_s=0, loop_lag_p99_s=0, distorted=False)
    return Run(repeat=0, start_s=0, end_s=9, flushed=True, requests=[request], client=health)


def account(*sent: tuple[float, int]) -> list[dict[str, object]]:
    return [{"rid": "r", "input_tokens": 1, "received_s": 0.0, "sent": list(sent)}]


def test_a_late_client_is_seen_in_rate_and_itl() -> None:
    found = both_sides(run((1.0, 1), (4.0, 5)), account((1.0, 1), (3.0, 5)))
    assert (found.client_rate, found.server_rate) == (5 / 3, 5 / 2)
    assert found.rate_error == pytest.approx(-1 / 3)
    assert (found.client_itl, found.server_itl) == ([0.75] * 4, [0.5] * 4)


def test_tokens_that_one_side_lacks_and_failures_are_refused() -> None:
    with pytest.raises(BadResult, match="the client counted 5 tokens, the server sent 6"):
        both_sides(run((1.0, 1), (4.0, 5)), account((1.0, 1), (3.0, 6)))
    with pytest.raises(BadResult, match=r"1 of 1 requests failed, e\.g\. Timeout late"):
        both_sides(run((1.0, 1), failure=Failure(type="Timeout", detail="late")), account((1.0, 1)))


def test_every_stream_of_a_real_run_is_on_both_sides() -> None:
    workload = Workload(source="load", max_new_tokens=9, ignore_eos=True)
    with mock_server(9, 4, 0.01, 0.02) as url:
        measured, found = asyncio.run(load(url, prompts(40), workload, 20))
    assert len(found.client_itl) == len(found.server_itl) == 40 * 8
    assert "40 requests, 20 at once" in described(measured, found, 20)
