from __future__ import annotations

import random
from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st
from random_trees import trees

from ddtree.tree import Tree, best_first, chain, is_chain, moves, visibility, walk


def ancestors_or_self(tree: Tree, node: int) -> set[int]:
    found = set()
    while node >= 0:
        found.add(node)
        node = tree.parents[node]
    return found


@given(trees(24))
def test_a_row_sees_its_ancestors_and_itself(tree: Tree) -> None:
    seen = visibility(tree)
    for node in range(len(tree)):
        assert set(seen[node].nonzero()[:, 0].tolist()) == ancestors_or_self(tree, node)


@given(trees(24))
def test_chains_and_only_chains_have_the_causal_mask(tree: Tree) -> None:
    n = len(tree)
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    assert is_chain(tree) == bool((visibility(tree) == causal).all())


@given(trees(24), st.lists(st.integers(0, 3), min_size=24, max_size=24))
def test_walk_follows_the_targets_choice_like_a_naive_search(tree: Tree, choices: list[int]) -> None:
    node, path = 0, [0]
    while True:
        match = [j for j in range(len(tree)) if tree.parents[j] == node and tree.tokens[j] == choices[node]]
        if not match:
            break
        node = match[0]
        path.append(node)
    found = walk(tree, choices.__getitem__)
    assert found.path == path
    assert found.bonus == choices[node]


@given(trees(24), st.lists(st.integers(0, 3), min_size=24, max_size=24))
def test_moving_rows_puts_the_path_in_order(tree: Tree, choices: list[int]) -> None:
    path = walk(tree, choices.__getitem__).path
    rows = list(range(len(tree)))
    first, sources = moves(path)
    for offset, source in enumerate(sources):  # in order and in place, as a cache would
        rows[first + offset] = rows[source]
    assert rows[: len(path)] == path
    assert path[:first] == list(range(first))


def test_an_accepted_chain_moves_nothing() -> None:
    assert moves([0, 1, 2, 3]) == (4, [])
    assert moves([0, 2, 3]) == (1, [2, 3])


def test_each_node_on_the_path_is_asked_once_and_no_other() -> None:
    asked: list[int] = []
    tree = best_first(9, [[1, 2], [3, 4]], [[-0.5, -1.0], [-0.1, -3.0]], 4)

    def choose(node: int) -> int:
        asked.append(node)
        return {0: 2}.get(node, 3)

    found = walk(tree, choose)
    assert asked == found.path


def law_of_the_target(prefix: tuple[int, ...]) -> list[float]:
    """A toy target over three tokens whose next token depends on everything before it."""
    weights = [1 + (7 * sum((i + 2) * t for i, t in enumerate(prefix)) + 3 * token) % 5 for token in range(3)]
    return [w / sum(weights) for w in weights]


def exact_law(length: int) -> dict[tuple[int, ...], float]:
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        law = {(*s, t): p * q for s, p in law.items() for t, q in enumerate(law_of_the_target(s)) if q}
    return law


def generate(tree_for: list[Tree], rng: random.Random, length: int) -> tuple[int, ...]:
    out: tuple[int, ...] = ()
    while len(out) < length:
        tree = tree_for[len(out) % len(tree_for)]
        prefixes = [out]
        for node in range(1, len(tree)):
            prefixes.append((*prefixes[tree.parents[node]], tree.tokens[node]))
        drawn = walk(tree, lambda node, p=prefixes: rng.choices(range(3), law_of_the_target(p[node]))[0])
        out = (*prefixes[drawn.path[-1]], drawn.bonus)
    return out[:length]


def test_sampling_verification_has_the_targets_law() -> None:
    length, n, rng = 4, 6_000, random.Random(20)
    tree = best_first(0, [[0, 2], [1, 0], [2, 1]], [[-0.4, -1.2], [-0.3, -1.5], [-0.2, -1.9]], 7)
    expected = exact_law(length)
    for plan in ([tree], [chain(0, [1, 1, 2])], [chain(0, []), tree]):
        counts = Counter(generate(plan, rng, length) for _ in range(n))
        chi2 = sum((counts[s] - n * p) ** 2 / (n * p) for s, p in expected.items())
        # 80 degrees of freedom: mean 80, standard deviation 12.6; 143 is five deviations up
        assert len(expected) == 81
        assert chi2 < 143
