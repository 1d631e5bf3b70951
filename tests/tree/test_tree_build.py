from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.tree import Tree, best_first, chain

Rows = list[list[float]]


@st.composite
def log_prob_rows(draw: st.DrawFn) -> Rows:
    """Sorted rows of multiples of 1/4, exact in binary, drawn from few values so that ties are the rule."""
    depth = draw(st.integers(1, 4))
    width = draw(st.integers(1, 4))
    value = st.integers(-6, 0).map(lambda i: i / 4)
    return [sorted(draw(st.lists(value, min_size=width, max_size=width)), reverse=True) for _ in range(depth)]


def labels(rows: Rows) -> list[list[int]]:
    return [[100 * d + r for r in range(len(row))] for d, row in enumerate(rows)]


def paths(tree: Tree) -> list[tuple[int, ...]]:
    """Tokens from below the root down to each node, in node order."""
    found: list[tuple[int, ...]] = [()]
    for node in range(1, len(tree)):
        found.append((*found[tree.parents[node]], tree.tokens[node]))
    return found


def brute_force(rows: Rows, budget: int) -> list[tuple[int, ...]]:
    every = []
    for depth in range(1, len(rows) + 1):
        for ranks in product(*(range(len(row)) for row in rows[:depth])):
            every.append((-sum(row[r] for row, r in zip(rows, ranks, strict=False)), depth, ranks))
    return [tuple(100 * d + r for d, r in enumerate(ranks)) for _, _, ranks in sorted(every)[:budget]]


@given(log_prob_rows(), st.integers(1, 40))
def test_tree_is_the_brute_force_optimum_in_order_ties_included(rows: Rows, budget: int) -> None:
    tree = best_first(7, labels(rows), rows, budget)
    assert tree.tokens[0] == 7
    assert paths(tree)[1:] == brute_force(rows, budget)


@given(log_prob_rows(), st.integers(1, 30), st.integers(1, 30))
def test_any_prefix_of_the_nodes_is_the_smaller_tree(rows: Rows, small: int, more: int) -> None:
    large = best_first(7, labels(rows), rows, small + more)
    tree = best_first(7, labels(rows), rows, small)
    n = len(tree)
    assert tree == Tree(large.tokens[:n], large.parents[:n], large.depths[:n])


@given(log_prob_rows(), st.integers(1, 40))
def test_parents_come_first_and_depths_count_edges(rows: Rows, budget: int) -> None:
    tree = best_first(7, labels(rows), rows, budget)
    assert tree.parents[0] == -1
    for node in range(1, len(tree)):
        assert 0 <= tree.parents[node] < node
        assert tree.depths[node] == tree.depths[tree.parents[node]] + 1


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=15), st.integers(1, 20))
def test_one_candidate_per_depth_gives_the_chain(scores: list[float], budget: int) -> None:
    drafts = list(range(50, 50 + len(scores)))
    tree = best_first(7, [[d] for d in drafts], [[s] for s in scores], budget)
    assert tree == chain(7, drafts[:budget])


def test_certain_drafts_with_equal_scores_keep_the_parent_before_the_child() -> None:
    tree = best_first(0, [[1, 2], [3, 4], [5, 6]], [[0.0, -9.0], [0.0, -9.0], [0.0, -9.0]], 3)
    assert tree == chain(0, [1, 3, 5])


def test_impossible_tokens_do_not_disturb_the_order() -> None:
    dead = float("-inf")
    tree = best_first(0, [[1, 2], [3, 4]], [[0.0, dead], [-1.0, dead]], 4)
    assert paths(tree) == [(), (1,), (1, 3), (2,), (1, 4)]


@pytest.mark.parametrize("budget", [0, -1])
def test_no_budget_leaves_the_root_alone(budget: int) -> None:
    assert best_first(9, [[1]], [[0.0]], budget) == chain(9, [])
