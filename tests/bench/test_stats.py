import math

import numpy as np
import pytest

from ddtree.bench import stats
from ddtree.bench.stats import (
    Interval,
    mean_interval,
    noise_floor,
    outcome,
    paired_ratio,
    prompts_to_settle,
    verdict,
)


def test_the_ratio_is_of_sums_and_the_seed_fixes_the_interval() -> None:
    found = paired_ratio([1.0, 30.0], [2.0, 10.0])
    assert found.value == 31 / 12
    assert found.n == 2
    assert found == paired_ratio([1.0, 30.0], [2.0, 10.0])
    assert found.low < found.value < found.high


def test_weights_make_it_a_ratio_of_rates() -> None:
    seconds, tokens = np.array([4.0, 6.0]), np.array([10.0, 10.0])
    assert paired_ratio(seconds, [2.0, 3.0], tokens, [10.0, 15.0]).value == pytest.approx((10 / 20) / (5 / 25))


def test_identical_arms_have_ratio_one_without_spread() -> None:
    values = np.array([0.3, 5.0, 2.2, 0.9, 1.4])
    assert paired_ratio(values, values) == Interval(1.0, 1.0, 1.0, 5)


def test_groups_are_resampled_whole() -> None:
    num, den = [1.0, 2.0, 5.0, 6.0, 3.0, 2.0], [1.0, 1.0, 2.0, 2.0, 1.0, 1.0]
    grouped = paired_ratio(num, den, groups=["a", "a", "b", "b", "c", "c"])
    assert grouped == paired_ratio([3.0, 11.0, 5.0], [2.0, 4.0, 2.0])
    assert grouped.n == 3


def test_repeating_the_same_pairs_under_their_group_adds_no_certainty() -> None:
    rng = np.random.default_rng(3)
    num, den = rng.lognormal(0, 0.5, 10), rng.lognormal(0, 0.5, 10)
    once = paired_ratio(num, den)
    copied = paired_ratio(np.tile(num, 4), np.tile(den, 4), groups=list(range(10)) * 4)
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high))
    assert paired_ratio(np.tile(num, 4), np.tile(den, 4)).half_width < 0.7 * once.half_width


def test_too_little_data_has_no_bounds() -> None:
    assert paired_ratio([], []).n == 0
    assert math.isnan(mean_interval([]).value)
    single = mean_interval([4.0])
    assert (single.value, single.n) == (4.0, 1)
    assert math.isnan(single.low)
    assert math.isnan(single.high)


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        paired_ratio([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="one length"):
        paired_ratio([1.0], [1.0], groups=["a", "b"])
    with pytest.raises(ValueError, match="must be positive"):
        paired_ratio([1.0, 1.0], [0.0, 0.0])


@pytest.mark.parametrize("n", [8, 12, 40])
def test_a_95_percent_interval_covers_the_truth_about_95_percent_of_the_time(n: int) -> None:
    """Prompts of very different length, both arms noisy, true ratio 2."""
    rng, runs, covered = np.random.default_rng(n), 400, 0
    for seed in range(runs):
        length = rng.lognormal(0, 0.5, n)
        found = paired_ratio(2 * length * rng.lognormal(0, 0.2, n), length * rng.lognormal(0, 0.2, n), seed=seed)
        covered += found.low <= 2 <= found.high
    assert 0.91 <= covered / runs <= 0.985


def test_the_interval_of_a_mean_covers_too() -> None:
    rng, runs = np.random.default_rng(0), 400
    found = [mean_interval(rng.normal(3, 1, 10), seed=seed) for seed in range(runs)]
    assert 0.91 <= sum(i.low <= 3 <= i.high for i in found) / runs <= 0.985


def test_many_values_are_resampled_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(3, 1, 500)
    monkeypatch.setattr(stats, "_BLOCK", 1000)
    found = mean_interval(values)
    assert found.low < values.mean() < found.high


@pytest.mark.parametrize(("df", "t"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_student_quantiles_agree_with_the_tables(df: int, t: float) -> None:
    assert stats.student_t(0.975, df) == pytest.approx(t, rel=0.01)
    assert stats.student_t(0.025, df) == pytest.approx(-t, rel=0.01)


def test_verdicts_say_what_to_do() -> None:
    assert verdict(Interval(2.0, 1.95, 2.05, 12)) == "stable"
    assert verdict(Interval(2.0, 1.8, 2.2, 10)) == "wide: about 30 more prompts would settle it"
    assert verdict(Interval(2.0, 1.99, 2.01, 4)) == "too few"
    assert verdict(mean_interval([])) == "too few"


def test_the_predicted_number_of_prompts_settles_it() -> None:
    values = np.random.default_rng(1).normal(1, 0.3, 20)
    more = int(verdict(mean_interval(values)).split()[2])
    settled = math.ceil((20 + more) / 20)
    assert verdict(mean_interval(np.tile(values, settled))) == "stable"
    assert verdict(mean_interval(np.tile(values, settled // 2))) != "stable"


def test_the_noise_floor_is_the_largest_distance_in_either_direction() -> None:
    assert noise_floor([1.02, 0.8, 1.1]) == pytest.approx(0.25)
    assert noise_floor([1.0]) == 0.0
    assert math.isnan(noise_floor([]))


@pytest.mark.parametrize(
    ("low", "high", "floor", "expected"),
    [
        (1.02, 1.3, 0.0, "faster"),
        (1.02, 1.3, 0.05, "open"),
        (0.7, 0.9, 0.05, "slower"),
        (0.7, 0.96, 0.05, "open"),
        (0.97, 1.04, 0.05, "same"),
        (0.97, 1.04, 0.02, "open"),
        (0.8, 1.3, 0.05, "open"),
    ],
)
def test_a_difference_counts_only_beyond_the_noise(low: float, high: float, floor: float, expected: str) -> None:
    assert outcome(Interval(math.sqrt(low * high), low, high, 20), floor) == expected


def test_too_few_pairs_decide_nothing_however_narrow_their_interval() -> None:
    assert outcome(Interval(2.0, 1.9, 2.1, 4)) == "too few"
    assert outcome(paired_ratio([1.0], [0.5])) == "too few"
    assert prompts_to_settle(Interval(2.0, 0.9, 2.1, 4)) is None


@pytest.mark.parametrize(("ratio", "spread", "floor"), [(1.1, 0.35, 0.0), (0.9, 0.3, 0.02), (1.02, 0.2, 0.05)])
def test_the_predicted_number_of_prompts_settles_a_comparison(ratio: float, spread: float, floor: float) -> None:
    noise = np.random.default_rng(2).lognormal(0, spread, 24)
    arm = np.ones(24)
    reference = noise * ratio / noise.mean()
    now = paired_ratio(reference, arm)
    more = prompts_to_settle(now, floor)
    assert outcome(now, floor) == "open"
    assert more is not None

    def with_copies(times: int) -> Interval:
        return paired_ratio(np.tile(reference, times), np.tile(arm, times))

    settled = with_copies(math.ceil(1.15 * (24 + more) / 24))
    assert outcome(settled, floor) == ("same" if abs(ratio - 1) < floor else "faster" if ratio > 1 else "slower")
    assert prompts_to_settle(settled, floor) == 0
    assert outcome(with_copies(max(1, (24 + more) // 48)), floor) == "open"


def test_a_value_on_the_edge_of_the_noise_is_never_settled() -> None:
    assert prompts_to_settle(Interval(1.0, 0.9, 1.1, 20), 0.0) is None
