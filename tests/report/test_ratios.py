"""Comparisons on simulated requests: what pairs, what drifts, what competes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ddtree.bench import stats
from ddtree.plan.schema import Plan
from ddtree.report import ratios

BASE = {"model": "m", "method": "autoregressive"}


def plan(**trees: dict[str, object]) -> Plan:
    return Plan.model_validate(
        {
            "plan": "p",
            "baseline": "ar",
            "models": {"m": {"target": {"path": "t"}, "drafter": {"path": "d"}}},
            "servers": {"ar": BASE, **trees},
            "workloads": {"short": {"source": "held_out"}},
        }
    )


def budgets(n: int) -> dict[str, dict[str, object]]:
    return {f"tree{i}": {"model": "m", "method": "ddtree", "budget": i + 1} for i in range(n)}


def answers(server: str, seconds: np.ndarray, repeat: int = 0) -> pd.DataFrame:
    """One answer of ten tokens per prompt."""
    return pd.DataFrame(
        {
            "server": server, "workload": "short", "role": "load", "concurrency": 1, "repeat": repeat, "failure": "",
            "conversation": [f"c{i:02d}" for i in range(len(seconds))], "turn": 0, "category": "all",
            "e2e_s": seconds, "output_tokens": 10, "decode_s": seconds, "decode_tokens": 9, "path": f"{server}.json",
        }
    )  # fmt: skip


def test_pairing_by_prompt_takes_the_prompts_own_length_out_of_the_interval() -> None:
    rng = np.random.default_rng(0)
    length = rng.lognormal(0, 1.0, 12)
    shuffled = answers("tree0", length / 2 * rng.lognormal(0, 0.01, 12)).sample(frac=1, random_state=1)
    the_plan = plan(**budgets(1))
    pairs = ratios.paired(pd.concat([answers("ar", length), shuffled]), the_plan)
    found = ratios.speedups(pairs, the_plan, {})
    row = found[(found["metric"] == "e2e") & (found["workload"] == "all") & (found["category"] == "all")].iloc[0]
    assert row["ratio"] == pytest.approx(2, rel=0.02)
    assert row["high"] - row["low"] < 0.1
    assert (row["outcome"], row["more_prompts"]) == ("faster", 0)


def test_a_drift_between_sessions_shows_between_two_starts_of_one_server_and_withdraws_the_winner() -> None:
    """Repeats inside a session agree; the machine is 8 % slower when the server is started again."""
    rng = np.random.default_rng(1)
    length = rng.lognormal(0, 0.5, 12)

    def session(server: str, factor: float) -> list[pd.DataFrame]:
        return [answers(server, factor * length * rng.lognormal(0, 0.002, 12), repeat) for repeat in (0, 1)]

    trees = budgets(1)
    seen = pd.concat([*session("ar", 1.0), *session("tree0", 0.95)])
    alone = plan(**trees)
    noise = ratios.noise(seen, alone)
    assert ratios.floors(noise)["e2e"] < 0.01
    assert outcome(seen, alone) == "faster"

    twice = plan(**trees, again=BASE)
    seen = pd.concat([seen, *session("again", 1.08)])
    noise = ratios.noise(seen, twice)
    apart = noise[(noise["kind"] == "sessions") & (noise["workload"] == "all") & (noise["metric"] == "e2e")]
    assert list(apart["server"]) == ["again"]
    assert apart["ratio"].item() == pytest.approx(1 / 1.08, rel=0.01)
    assert ratios.floors(noise)["e2e"] == pytest.approx(0.08, rel=0.1)
    assert outcome(seen, twice) == "same"


def outcome(seen: pd.DataFrame, the_plan: Plan) -> str:
    found = ratios.best(ratios.paired(seen, the_plan), the_plan, ratios.floors(ratios.noise(seen, the_plan)))
    row = found[(found["metric"] == "e2e") & (found["against"] == "baseline")].iloc[0]
    assert row["server"] == row["server_second"] == "tree0"  # a second start of the baseline does not compete
    return str(row["outcome"])


def test_choosing_among_equal_arms_flatters_the_choice_on_its_own_prompts_but_not_on_held_out_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight trees without any advantage over the baseline, twelve prompts, as budgets of one tree would be."""
    monkeypatch.setattr(stats, "RESAMPLES", 8)
    the_plan, rng = plan(**budgets(8)), np.random.default_rng(5)
    naive, held_out = [], []
    for _ in range(25):
        arms = [answers(name, rng.lognormal(0, 0.25, 12)) for name in the_plan.servers if name != "ar"]
        pairs = ratios.paired(pd.concat([answers("ar", np.full(12, np.exp(0.25**2 / 2))), *arms]), the_plan)
        everything = ratios.speedups(pairs, the_plan, {})
        naive.append(everything[(everything["metric"] == "e2e") & (everything["category"] == "all")]["ratio"].max())
        chosen = ratios.best(pairs, the_plan, {})
        held_out.append(chosen[chosen["metric"] == "e2e"]["ratio"].item())
    assert np.mean(naive) > 1.06
    assert abs(np.mean(held_out) - 1) < 0.04


def test_a_tree_is_compared_with_the_chain_of_its_own_verify_width() -> None:
    """The block's own chain is fast; a narrower one, as wide as the tree, is the fairer reference."""
    seconds = np.linspace(1, 2, 8)
    dflash = {"model": "m", "method": "dflash"}
    the_plan = plan(
        wide=dflash,
        narrow={**dflash, "draft_tokens": 7},
        windowed={**dflash, "draft_tokens": 7, "draft_window": 64},
        tree={"model": "m", "method": "ddtree", "budget": 7, "topk": 4},
    )
    factors = {"ar": 4, "wide": 1.5, "narrow": 2, "windowed": 3, "tree": 1}
    seen = pd.concat([answers(name, factor * seconds) for name, factor in factors.items()])
    found = ratios.speedups(ratios.paired(seen, the_plan), the_plan, {})
    row = found[(found["against"] == "width") & (found["metric"] == "e2e") & (found["category"] == "all")]
    assert set(zip(row["server"], row["reference"], strict=True)) == {("tree", "narrow")}
    assert list(row["ratio"]) == pytest.approx([2.0] * len(row))
