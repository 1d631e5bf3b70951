"""Mistakes of tree verification that acceptance hides are found by the audit, and a right engine is cleared."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from planted import DEPTH, OffByOne, SiblingLeak, UnmovedRows, acceptance_length, audited, engine
from tiny import tiny_pair

from ddtree.engine.api import Sampling
from ddtree.engine.target import Target

GREEDY = Sampling(max_new_tokens=40, ignore_eos=True)


def prompts(vocab: int) -> list[list[int]]:
    rng = random.Random(7)
    return [[rng.randrange(vocab) for _ in range(n)] for n in (3, 6, 10, 15, 24, 30)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pair(tmp_path_factory.mktemp("audited"), vocab=64)[0]


def test_a_right_engine_is_cleared_with_every_draft_accepted(target: Path) -> None:
    verdict, answers = audited(target, engine(target, Target, oracle=True), prompts(64), GREEDY)
    assert (verdict.compared, verdict.identical, verdict.bug) == (6, 6, 0)
    assert acceptance_length(answers) > DEPTH


@pytest.mark.parametrize("mistake", [SiblingLeak, UnmovedRows, OffByOne])
def test_a_planted_mistake_is_a_bug_while_acceptance_looks_healthy(target: Path, mistake: type[Target]) -> None:
    verdict, answers = audited(target, engine(target, mistake, oracle=True), prompts(64), GREEDY)
    assert verdict.bug > 0
    assert verdict.largest_gap is not None
    assert verdict.largest_gap > 10 * verdict.threshold
    assert acceptance_length(answers) > 2.0
