from __future__ import annotations

from pathlib import Path

from engines import make_engine, run

from ddtree.engine.api import GenRequest, Sampling
from ddtree.engine.shadow import Shadow
from ddtree.tree import Tree

#        0 (5)
#       /     \
#    1 (6)   2 (7)
#      |       |
#    3 (8)   4 (9)
TREE = Tree((5, 6, 7, 8, 9), (-1, 0, 0, 1, 2), (0, 1, 1, 2, 2))


def test_a_tree_is_scored_once_its_walk_is_decided() -> None:
    shadow = Shadow()
    shadow.watch(TREE, 1)
    assert shadow.settle([0, 5], False) == []
    assert shadow.settle([0, 5, 7], False) == []  # 9 may still follow
    assert shadow.settle([0, 5, 7, 9], False) == []  # depth 2 is reached, but the request may yet end here
    assert shadow.settle([0, 5, 7, 9, 1], False) == [0, 0, 1]
    assert shadow.settle([0, 5, 7, 9, 1], True) == [0, 0, 1]


def test_a_wrong_token_decides_at_once_and_the_end_decides_the_rest() -> None:
    shadow = Shadow()
    shadow.watch(TREE, 1)
    shadow.watch(TREE, 1)
    assert shadow.settle([0, 5, 4], False) == [2]
    shadow.watch(TREE, 1)
    assert shadow.settle([0, 5, 6], True) == [2, 1]


def test_a_shadow_tree_scores_what_the_real_tree_accepts_from_the_same_root(pair: tuple[Path, Path]) -> None:
    """Each shadow score equals the first verification of a real tree that starts where the chain stood."""
    prompt, budget, limit = [1, 3, 5, 0], 12, 24
    shadow_engine = make_engine(pair, "ddtree", budget=budget, shadow=True)
    answer = run(shadow_engine, [prompt], Sampling(max_new_tokens=limit, ignore_eos=True))[0]
    assert answer.counters is not None
    assert answer.counters.shadow_histogram is not None
    real = make_engine(pair, "ddtree", budget=budget)
    expected: dict[int, int] = {}
    done = 1
    for chunk in answer.chunks[1:]:
        # re-reading prompt and output, save for the root, ends with the root as the first token
        real.add(GenRequest("r", prompt + answer.ids[: done - 1], Sampling(limit - done + 1, ignore_eos=True)))
        first = real.step()[0]
        assert first.new_ids == answer.ids[done - 1 : done]
        progress = real.step()[0]
        assert progress.counters is not None
        accepted = len(progress.counters.histogram) - 1
        expected[accepted] = expected.get(accepted, 0) + 1
        real.abort("r")
        real.step()
        done += len(chunk)
    assert dict(enumerate(answer.counters.shadow_histogram)) == {
        d: expected.get(d, 0) for d in range(len(answer.counters.shadow_histogram))
    }
    assert sum(expected.values()) == answer.counters.verify_steps
