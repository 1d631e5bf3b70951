"""Counters of speculation as SGLang 0.5.16 tells them, in the shape that a real DFLASH answer had."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.bench.meta import speculation


def sglang(histogram: list[int], tokens: int, width: int = 16, **changes: object) -> dict[str, object]:
    steps, correct = sum(histogram), sum(d * n for d, n in enumerate(histogram))
    proposed = steps * (width - 1)
    return {
        "id": "0f", "finish_reason": {"type": "length", "length": tokens}, "prompt_tokens": 46,
        "weight_version": "default", "num_retractions": 0, "reasoning_tokens": 0, "completion_tokens": tokens,
        "cached_tokens": 0, "cached_tokens_details": None, "dp_rank": None, "e2e_latency": 0.05,
        "spec_accept_rate": correct / proposed, "spec_accept_length": tokens / steps, "spec_verify_ct": steps,
        "spec_num_correct_drafts": correct, "spec_num_proposed_drafts": proposed, "spec_accepted_drafts": correct,
        "spec_proposed_drafts": proposed, "spec_correct_drafts_histogram": histogram,
        "spec_accept_histogram": histogram,
    } | changes  # fmt: skip


def test_the_prefill_token_is_no_speculation_and_the_cut_off_end_does_not_count() -> None:
    # 64 tokens in 5 steps, as an H200 answered: 1 + 1 + 4 * 16 = 66 were made, the limit cut 2 off.
    found = speculation(sglang([1] + [0] * 14 + [4], tokens=64))
    assert found
    assert (found.verify_steps, found.first_tokens, found.verified_nodes) == (5, 1, 80)
    assert found.histogram == [1] + [0] * 13 + [1, 3]


def test_a_release_without_the_old_name_of_the_histogram_is_understood() -> None:
    meta = sglang([2, 1], tokens=5)
    del meta["spec_accept_histogram"]
    found = speculation(meta)
    assert found
    assert found.histogram == [2, 1]


def test_an_evicted_request_has_one_more_token_from_a_prefill() -> None:
    found = speculation(sglang([2, 1], tokens=6, num_retractions=1))
    assert found
    assert (found.first_tokens, found.histogram) == (2, [2, 1])


def test_an_autoregressive_answer_has_no_counters() -> None:
    assert speculation({"completion_tokens": 4, "finish_reason": {"type": "stop"}}) is None


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (sglang([2, 1], tokens=5, spec_verify_ct=4), "spec_verify_ct says 4"),
        (sglang([3], tokens=2), "no step was long enough for the 2 tokens"),
        (sglang([2, 1], tokens=5, spec_num_proposed_drafts=None), "spec_num_proposed_drafts is None"),
    ],
)
def test_counters_that_contradict_each_other_are_refused(meta: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        speculation(meta)


def test_a_missing_histogram_is_refused() -> None:
    meta = sglang([2, 1], tokens=5)
    del meta["spec_accept_histogram"], meta["spec_correct_drafts_histogram"]
    with pytest.raises(KeyError):
        speculation(meta)


@given(st.lists(st.integers(0, 15), min_size=1, max_size=40), st.data())
def test_tokens_and_steps_always_add_up(accepted: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, accepted[-1]))
    histogram = [accepted.count(d) for d in range(max(accepted) + 1)]
    tokens = 1 + sum(d + 1 for d in accepted) - cut
    found = speculation(sglang(histogram, tokens))
    assert found
    kept = sum(d * n for d, n in enumerate(found.histogram))
    assert sum(found.histogram) == found.verify_steps == len(accepted)
    # Every step but a cut one has its bonus token besides the accepted drafts.
    assert 1 + kept + found.verify_steps - (cut > 0) == tokens
