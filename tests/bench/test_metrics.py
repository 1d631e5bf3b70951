import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.bench import metrics
from ddtree.bench.records import ClientHealth, Failure, Request, Run


def request(
    *chunks: tuple[float, int], sent: float = 0.0, done: float | None = None, name: str = "a", failure: str = ""
) -> Request:
    return Request(
        conversation=name, turn=0, input_tokens=5, sent_s=sent, chunks=list(chunks), finish_reason="stop",
        done_s=done if done is not None else (chunks[-1][0] if chunks else sent),
        failure=Failure(type=failure) if failure else None,
    )  # fmt: skip


def run(*requests: Request, start: float = 0.0, end: float = 10.0) -> Run:
    health = ClientHealth(loop_lag_max_s=0, loop_lag_p99_s=0, distorted=False)
    return Run(repeat=0, start_s=start, end_s=end, flushed=True, requests=list(requests), client=health)


def test_a_chunk_of_n_tokens_is_n_equal_intervals() -> None:
    m = metrics.request_metrics(request((10.5, 1), (11.5, 5), (11.75, 6), sent=10.0))
    assert m.ttft_s == 0.5
    assert m.itl_s == [0.25, 0.25, 0.25, 0.25, 0.25]
    assert m.tpot_s == 0.25
    assert m.e2e_s == 1.75
    assert m.e2e_per_token_s == 1.75 / 6


def test_tokens_are_counted_by_the_server_not_by_chunks_or_text() -> None:
    with_usage_chunk = request((1.0, 1), (2.0, 4), (2.5, 5))
    assert metrics.output_tokens(with_usage_chunk) == 5


def test_an_empty_delta_neither_starts_nor_ends_an_interval() -> None:
    m = metrics.request_metrics(request((0.5, 0), (1.0, 1), (2.0, 1), (3.0, 3), (4.0, 3)))
    assert m.ttft_s == 1.0
    assert m.itl_s == [1.0, 1.0]
    assert m.tpot_s == 1.0
    assert m.e2e_s == 4.0


def test_what_was_not_observed_is_none_not_zero() -> None:
    nothing = metrics.request_metrics(request(failure="EmptyStream"))
    assert (nothing.ttft_s, nothing.itl_s, nothing.tpot_s, nothing.e2e_s) == (None, [], None, None)
    at_once = metrics.request_metrics(request((1.0, 7)))
    assert (at_once.ttft_s, at_once.itl_s, at_once.tpot_s, at_once.e2e_s) == (1.0, [], None, 1.0)


@given(
    steps=st.lists(st.tuples(st.floats(0.001, 5), st.integers(0, 8)), min_size=1, max_size=30),
    first=st.integers(1, 3),
)
def test_intervals_add_up_to_the_decoding_time(steps: list[tuple[float, int]], first: int) -> None:
    chunks = [(1.0, first)]
    for wait, new in steps:
        chunks.append((chunks[-1][0] + wait, chunks[-1][1] + new))
    r = request(*chunks)
    m = metrics.request_metrics(r)
    assert len(m.itl_s) == m.output_tokens - first
    assert sum(m.itl_s) == pytest.approx(metrics.decode_s(r) or 0.0)
    if first == 1 and m.itl_s:
        assert m.tpot_s == pytest.approx(sum(m.itl_s) / len(m.itl_s))


def test_a_run_counts_successes_only_and_names_its_failures() -> None:
    m = metrics.run_metrics(
        run(
            request((1.0, 1), (2.0, 21), name="a"),
            request((1.0, 100), name="b", failure="Truncated"),
            request(name="c", failure="Timeout"),
            request(name="d", failure="Timeout"),
        ),
        concurrency=4,
    )
    assert (m.successes, m.failures) == (1, {"Truncated": 1, "Timeout": 2})
    assert m.failure_rate == 0.75
    assert (m.output_tokens, m.wall_s, m.output_throughput) == (21, 10.0, 2.1)
    assert m.ttft is not None
    assert m.ttft.n == 1


def test_a_run_without_success_has_no_throughput() -> None:
    m = metrics.run_metrics(run(request(failure="Timeout")), concurrency=1)
    assert (m.output_throughput, m.steady_throughput, m.ttft, m.e2e) == (None, None, None, None)


def test_percentiles_are_over_observed_values() -> None:
    s = metrics.summary([1.0, None, 2.0, 3.0, None])
    assert s == metrics.Summary(n=3, mean=2.0, p50=2.0, p90=pytest.approx(2.8), p99=pytest.approx(2.98))
    assert metrics.summary([None]) is None


def test_the_steady_state_lasts_from_full_to_first_free_place() -> None:
    # Two places: "b" fills the second at 1, "c" and "d" follow at once; "c" is the first to leave its place free.
    requests = [
        request((1.0, 1), (3.0, 3), name="a", sent=0.0),
        request((2.0, 2), (4.0, 4), name="b", sent=1.0),
        request((3.5, 1), (6.0, 11), name="c", sent=3.001),
        request((5.0, 5), (9.0, 50), name="d", sent=4.001),
    ]
    assert metrics.steady_window(requests, 2) == (1.0, 6.0)
    # After 1.0 and until 6.0: a 2 (of the chunk at 3), b 4, c 11, d 5.
    assert metrics.tokens_between(requests, 1.0, 6.0) == 2 + 4 + 11 + 5
    m = metrics.run_metrics(run(*requests), concurrency=2)
    assert (m.steady_s, m.steady_throughput) == (5.0, 22 / 5)


def test_turns_of_one_conversation_hold_their_place() -> None:
    requests = [
        request((1.0, 1), (2.0, 2), name="a", sent=0.0),
        request((2.5, 1), (5.0, 2), name="a", sent=2.001).model_copy(update={"turn": 1}),
        request((1.0, 1), (4.0, 9), name="b", sent=0.0),
    ]
    assert metrics.steady_window(requests, 2) == (0.0, 4.0)
    assert metrics.steady_window(requests, 3) is None
