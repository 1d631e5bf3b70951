from __future__ import annotations

from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_modules import IMPLEMENTATIONS
from random_trees import VOCABULARY, trees

from ddtree.sglang_plugin.tree import Trees, Walks
from ddtree.tree import Tree, moves
from ddtree.tree import walk as plain_walk

both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda module: module.__name__.split(".")[-1])


def on_device(found: list[Tree], nodes: int = 20) -> Trees:
    def padded(rows: list[list[int]], fill: list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([row + [f] * (nodes - len(row)) for row, f in zip(rows, fill, strict=True)], dtype=dtype)

    zeros = [0] * len(found)
    tokens = padded([list(t.tokens) for t in found], [t.tokens[0] for t in found], torch.int64)
    parents = padded([[0, *t.parents[1:]] for t in found], zeros, torch.int32)
    depths = padded([list(t.depths) for t in found], zeros, torch.int32)
    return Trees(tokens, parents, depths, torch.full_like(tokens, -1), torch.full_like(tokens, -1))


choice_lists = st.lists(st.integers(0, VOCABULARY - 1), min_size=20, max_size=20)


@both
@settings(deadline=None, max_examples=40)
@given(found=st.tuples(trees(19), trees(19)), choices=st.tuples(choice_lists, choice_lists), depth=st.integers(1, 19))
def test_walks_equal_the_plain_walk_and_stop_at_the_block(
    implementation: ModuleType, found: tuple[Tree, Tree], choices: tuple[list[int], list[int]], depth: int
) -> None:
    out = Walks.empty(2, depth, "cpu")
    implementation.walk(on_device(list(found)), torch.tensor(choices), out)
    for request, (tree, choice) in enumerate(zip(found, choices, strict=True)):
        path = plain_walk(tree, choice.__getitem__).path[:depth]
        emitted = [choice[node] for node in path]
        padding = [0] * (depth - len(path))
        assert out.lengths[request] == len(path)
        assert out.nodes[request].tolist() == path + padding
        assert out.tokens[request].tolist() == emitted + padding
        assert out.bonus[request] == emitted[-1]


@both
@settings(deadline=None, max_examples=40)
@given(tree=trees(19), known=st.lists(st.integers(0, VOCABULARY - 1), min_size=6, max_size=6), length=st.integers(0, 6))
def test_shadow_reach_equals_the_walk_along_the_known_tokens(
    implementation: ModuleType, tree: Tree, known: list[int], length: int
) -> None:
    def choose(node: int) -> int:
        depth = tree.depths[node]
        return known[depth] if depth < length else -1

    found = implementation.reached(on_device([tree]), torch.tensor([known]), torch.tensor([length], dtype=torch.int32))
    assert found.tolist() == [len(plain_walk(tree, choose).path) - 1]


@both
@settings(deadline=None, max_examples=20)
@given(tree=trees(19), choices=choice_lists, seed=st.integers(0, 100))
def test_rows_of_the_path_move_into_order_and_others_stay(
    implementation: ModuleType, tree: Tree, choices: list[int], seed: int
) -> None:
    out = Walks.empty(2, 16, "cpu")
    both_trees = on_device([tree, Tree((1,), (-1,), (0,))])
    implementation.walk(both_trees, torch.tensor([choices, choices]), out)
    slots = torch.randperm(50, generator=torch.Generator().manual_seed(seed))[:40].view(2, 20)
    keys, values = torch.arange(50 * 3).view(50, 3), torch.arange(50 * 40).view(50, 40) + 5000
    expected = [keys.clone(), values.clone()]
    path = plain_walk(tree, choices.__getitem__).path[:16]
    first, sources = moves(path)
    for buffer in expected:
        for offset, source in enumerate(sources):
            buffer[slots[0, first + offset]] = buffer[slots[0, source]]
    pointers = torch.tensor([keys.data_ptr(), values.data_ptr()])
    implementation.move_rows(pointers, torch.tensor([3 * 8, 40 * 8]), slots, out)
    assert torch.equal(keys, expected[0])
    assert torch.equal(values, expected[1])
