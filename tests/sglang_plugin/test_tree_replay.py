from __future__ import annotations

import numpy as np
import pytest
import replay

from ddtree.engine.api import GenRequest, Sampling, Settings
from ddtree.engine.drafter import Drafter
from ddtree.engine.engine import Engine
from ddtree.models import ModelFiles


def test_steps_skip_what_was_accepted_and_answers_are_pooled() -> None:
    accepted = np.array([2, 0, 0, 1, 0, 0])  # answers of 4 and 2 drafted positions
    answer = np.array([0, 0, 0, 0, 1, 1])
    assert replay.tokens_per_step(accepted, answer) == 6 / 4


def test_a_smaller_budget_or_fewer_candidates_accept_no_more() -> None:
    generator = np.random.default_rng(3)
    log_probs = -np.sort(generator.exponential(2, (50, 6, 8)).astype(np.float32))
    tokens = generator.permuted(np.tile(np.arange(8), (50, 6, 1)), axis=-1)
    known = generator.integers(0, 8, (50, 6))
    known[40:, 3:] = -1
    drafts = replay.Drafts(tokens, log_probs, known, np.zeros(50, np.int64))
    found = replay.accepted_by_trees(drafts, 8)
    for small, large in zip(replay.BUDGETS[:-1], replay.BUDGETS[1:], strict=True):
        assert (found[small] <= found[large]).all()
    assert found[63].max() > found[8].max() or (found[63] > found[8]).any()
    assert (found[63][40:] <= 3).all()


@pytest.mark.model
def test_the_replay_counts_the_steps_of_a_real_run(smollm2: ModelFiles) -> None:
    """One prompt at a time, so that both run the same arithmetic."""
    assert smollm2.drafter is not None
    prompt, budget = replay.held_out_prompts(smollm2.target)[0], 16
    engine = Engine(Settings(smollm2.target, smollm2.drafter, "ddtree", budget=budget, topk=8))
    engine.add(GenRequest("0", prompt, Sampling(24)))
    reply: list[int] = []
    while engine.has_work:
        progress = engine.step()[0]
        reply += progress.new_ids
    assert progress.counters is not None
    target = engine._target
    drafts = replay.draft_everywhere(target, Drafter(smollm2.drafter, target, None, 512), [prompt], [reply])
    accepted = replay.accepted_by_trees(drafts, 8)[budget]
    rate = replay.tokens_per_step(accepted, drafts.answer)
    assert rate == (len(reply) - 1) / progress.counters.verify_steps
