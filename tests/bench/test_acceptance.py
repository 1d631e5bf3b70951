import pytest

from ddtree.bench.acceptance import acceptance, at_least, decode_speedup, pooled, step_time
from ddtree.bench.records import Failure, Request, Speculation


def request(
    tokens: int, seconds: float, steps: int = 0, histogram: list[int] | None = None, shadow: list[int] | None = None,
    failure: Failure | None = None,
) -> Request:  # fmt: skip
    """First token at 1 s, the last one `seconds` later."""
    speculation = histogram and Speculation(
        verify_steps=steps, first_tokens=1, histogram=histogram, verified_nodes=8 * steps, shadow_histogram=shadow
    )
    return Request(
        conversation="a", turn=0, input_tokens=5, sent_s=0, chunks=[(1.0, 1), (1.0 + seconds, tokens)],
        done_s=1 + seconds, finish_reason="stop", speculation=speculation or None, failure=failure,
    )  # fmt: skip


def test_tau_is_pooled_over_steps_not_averaged_over_requests() -> None:
    short, long = request(5, 1.0, steps=1, histogram=[0, 0, 0, 1]), request(13, 8.0, steps=11, histogram=[10, 1])
    found = acceptance([short, long])
    assert found is not None
    assert found.tau == (4 + 12) / 12  # the mean of the two would be 2.5
    assert (found.steps, found.requests, found.verified_nodes_per_step) == (12, 2, 8.0)
    assert found.by_depth == [2 / 12, 1 / 12, 1 / 12]


def test_failed_and_unspeculated_requests_do_not_count() -> None:
    failed = request(50, 1.0, steps=1, histogram=[0, 1], failure=Failure(type="Truncated"))
    assert acceptance([failed, request(9, 1.0)]) is None
    assert step_time([failed]) is None


def test_depth_shares_count_steps_that_got_at_least_that_far() -> None:
    assert at_least([2, 3, 0, 5]) == [0.8, 0.5, 0.5]
    assert at_least([4]) == []
    assert at_least([0, 0]) == []
    assert pooled([[1, 2], [3], [0, 0, 7]]) == [4, 2, 7]


def test_the_shadow_tree_is_reported_beside_the_chain() -> None:
    found = acceptance([request(3, 1.0, steps=2, histogram=[2], shadow=[1, 0, 1])])
    assert found is not None
    assert (found.tau, found.shadow_tau, found.shadow_by_depth) == (1.0, 2.0, [0.5, 0.5])


def test_speedup_is_tokens_per_step_over_relative_step_time() -> None:
    arm = step_time([request(41, 4.0, steps=10, histogram=[0, 0, 0, 10])])
    base = step_time([request(21, 4.0), request(21, 6.0)])
    assert arm is not None
    assert base is not None
    assert (arm.tokens_per_step, arm.ms_per_step, arm.ms_per_token) == (4.0, 400.0, 100.0)
    assert (base.tokens_per_step, base.ms_per_step) == (1.0, 250.0)
    assert decode_speedup(arm, base) == pytest.approx(base.ms_per_token / arm.ms_per_token) == 2.5
