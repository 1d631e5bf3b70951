from __future__ import annotations

import itertools
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_modules import IMPLEMENTATIONS, kernels, reference

from ddtree.sglang_plugin import tree as device_tree
from ddtree.sglang_plugin.tree import Trees
from ddtree.tree import Tree, best_first, visibility

both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda module: module.__name__.split(".")[-1])


@st.composite
def log_probs(draw: st.DrawFn, steps: int) -> list[list[float]]:
    """Rows of L depths and K ranks, in eighths so that sums are exact in float32; few `steps` make many ties."""
    depth, k = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    row = st.lists(st.integers(0, steps), min_size=k, max_size=k).map(lambda xs: [-x / 8 for x in sorted(xs)])
    return draw(st.lists(row, min_size=depth, max_size=depth))


def token_of(depth: int, rank: int) -> int:
    return 100 * (depth + 1) + rank


def build(implementation: ModuleType, rows: list[list[list[float]]], nodes: int) -> Trees:
    """One tree per entry of `rows`, all of the same shape; root b is token b + 1."""
    probs = torch.tensor(rows)
    depth, k = probs.shape[1:]
    tokens = torch.tensor([[token_of(d, r) for r in range(k)] for d in range(depth)]).expand(len(rows), -1, -1)
    out = Trees.empty(len(rows), nodes, "cpu")
    for tensor in (out.tokens, out.parents, out.depths, out.first_child, out.next_sibling):
        tensor.fill_(77)  # whatever lies there before must not matter
    implementation.build_trees(tokens, probs, torch.arange(1, len(rows) + 1), out)
    return out


def used(trees: Trees, request: int) -> int:
    return 1 + int((trees.depths[request] > 0).sum())


def plain(trees: Trees, request: int) -> Tree:
    n = used(trees, request)
    tokens, parents, depths = (x[request, :n].tolist() for x in (trees.tokens, trees.parents, trees.depths))
    return Tree(tuple(tokens), (-1, *parents[1:]), tuple(depths))


def scores(tree: Tree, rows: list[list[float]]) -> list[float]:
    found = [0.0]
    for token, parent, depth in list(zip(tree.tokens, tree.parents, tree.depths, strict=True))[1:]:
        found.append(found[parent] + rows[depth - 1][token - token_of(depth - 1, 0)])
    return found


def every_score(rows: list[list[float]]) -> list[float]:
    """Of all prefixes of the product, best first."""
    prefixes = [p for d in range(1, len(rows) + 1) for p in itertools.product(range(len(rows[0])), repeat=d)]
    return sorted((sum(rows[i][r] for i, r in enumerate(p)) for p in prefixes), reverse=True)


@settings(deadline=None, max_examples=60)
@given(rows=log_probs(steps=4000), nodes=st.integers(2, 24))
def test_the_tree_is_best_first_and_equals_the_heaps(rows: list[list[float]], nodes: int) -> None:
    tree = plain(build(reference, [rows], nodes), 0)
    oracle = best_first(1, [[token_of(d, r) for r in range(len(rows[0]))] for d in range(len(rows))], rows, nodes)
    untied = len(set(scores(oracle, rows))) == len(oracle)
    if untied:
        n = min(nodes, len(oracle))
        assert tree == Tree(oracle.tokens[:n], oracle.parents[:n], oracle.depths[:n])


@settings(deadline=None, max_examples=60)
@given(rows=log_probs(steps=2), nodes=st.integers(2, 24))
def test_under_ties_the_scores_are_still_the_best_of_all_prefixes(rows: list[list[float]], nodes: int) -> None:
    tree = plain(build(reference, [rows], nodes), 0)
    assert scores(tree, rows)[1:] == every_score(rows)[: nodes - 1]
    assert len(set(zip(tree.parents, tree.tokens, strict=True))) == len(tree)  # no node twice


@settings(deadline=None, max_examples=60)
@given(rows=log_probs(steps=3), nodes=st.integers(2, 24))
def test_links_and_order_let_one_forward_pass_rebuild_the_parents(rows: list[list[float]], nodes: int) -> None:
    trees = build(reference, [rows], nodes)
    n = used(trees, 0)
    rebuilt = [0] * nodes
    for node in range(nodes):
        child, sibling = int(trees.first_child[0, node]), int(trees.next_sibling[0, node])
        assert child == -1 or node < child < n
        assert sibling == -1 or node < sibling < n
        if child != -1:
            rebuilt[child] = node
        if sibling != -1:
            rebuilt[sibling] = rebuilt[node]
    assert rebuilt == trees.parents[0].tolist()
    assert trees.tokens[0, n:].tolist() == [1] * (nodes - n)
    assert trees.depths[0, n:].tolist() == [0] * (nodes - n)


@settings(deadline=None, max_examples=30)
@given(rows=log_probs(steps=3), nodes=st.integers(3, 24), data=st.data())
def test_a_narrowed_tree_is_the_tree_of_the_smaller_budget(
    rows: list[list[float]], nodes: int, data: st.DataObject
) -> None:
    fewer = data.draw(st.integers(2, nodes))
    narrowed = device_tree.narrow(build(reference, [rows], nodes), fewer)
    small = build(reference, [rows], fewer)
    assert_same(narrowed, small)
    assert narrowed.tokens.is_contiguous()
    assert narrowed.first_child.is_contiguous()


def assert_same(a: Trees, b: Trees) -> None:
    for name in Trees.__dataclass_fields__:
        assert torch.equal(getattr(a, name), getattr(b, name)), name


@settings(deadline=None, max_examples=12)
@given(rows=log_probs(steps=3), nodes=st.integers(2, 12))
def test_the_kernel_builds_the_references_tree_ties_included(rows: list[list[float]], nodes: int) -> None:
    assert_same(build(kernels, [rows, rows[::-1]], nodes), build(reference, [rows, rows[::-1]], nodes))


@pytest.mark.parametrize(
    ("nodes", "depth", "k", "peak"), [(16, 15, 8, 0), (64, 15, 8, 25), (256, 15, 16, 0), (9, 7, 1, 0)]
)
def test_kernel_and_reference_agree_on_float_log_probs(nodes: int, depth: int, k: int, peak: float) -> None:
    generator = torch.Generator().manual_seed(nodes)
    x = torch.randn(1, depth, 50, generator=generator) * 3
    x[..., 0] += peak  # a certain drafter: log-probs of exactly 0, parents tied with their children
    rows = x.log_softmax(-1).sort(-1, descending=True).values[..., :k].tolist()
    assert_same(build(kernels, rows, nodes), build(reference, rows, nodes))


@both
def test_one_candidate_per_depth_gives_the_chain(implementation: ModuleType) -> None:
    tree = plain(build(implementation, [[[-0.5], [-1.0], [0.0]]], 6), 0)
    assert tree == Tree((1, 100, 200, 300), (-1, 0, 1, 2), (0, 1, 2, 3))


@both
def test_impossible_candidates_are_never_taken(implementation: ModuleType) -> None:
    never = float("-inf")
    trees = build(implementation, [[[-0.5, never], [never, never]], [[never, never], [-1.0, -1.0]]], 5)
    assert [used(trees, 0), used(trees, 1)] == [2, 1]


@both
@settings(deadline=None, max_examples=10)
@given(rows=log_probs(steps=4), nodes=st.integers(2, 12), seq_lens=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_the_mask_shows_ancestors_and_leaves_the_prefix_alone(
    implementation: ModuleType, rows: list[list[float]], nodes: int, seq_lens: tuple[int, int]
) -> None:
    trees = build(reference, [rows, rows[::-1]], nodes)
    full = torch.full((sum(nodes * (s + nodes) for s in seq_lens) + 3,), 7, dtype=torch.uint8)
    short = torch.zeros(2 * nodes * nodes, dtype=torch.bool)
    implementation.write_mask(trees, torch.tensor(seq_lens), full)
    implementation.write_mask(trees, None, short)
    start = 0
    for request, seq_len in enumerate(seq_lens):
        cells = full[start : start + nodes * (seq_len + nodes)].view(nodes, -1)
        start += cells.numel()
        n = used(trees, request)
        seen = torch.eye(nodes, dtype=torch.bool)
        seen[:, 0] = True  # an unused node sees the root and itself
        seen[:n, :n] = visibility(plain(trees, request))
        assert torch.equal(cells[:, seq_len:].bool(), seen)
        assert torch.equal(short.view(2, nodes, nodes)[request], seen)
        assert (cells[:, :seq_len] == 7).all()
    assert (full[start:] == 7).all()


def test_positions_count_from_the_root() -> None:
    trees = build(reference, [[[-0.5, -1.0], [-0.1, -3.0]]] * 2, 4)
    positions = torch.zeros(8, dtype=torch.int64)
    device_tree.write_positions(trees, torch.tensor([10, 20], dtype=torch.int32), positions)
    assert positions.tolist() == [10 + d for d in trees.depths[0].tolist()] + [20 + d for d in trees.depths[1].tolist()]


def test_a_budget_outside_its_range_is_refused() -> None:
    for nodes in (1, 257):
        with pytest.raises(ValueError, match="allowed: 1 to 255"):
            Trees.empty(1, nodes, "cpu")
