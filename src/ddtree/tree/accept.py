"""Walking a verified tree, and moving the K/V rows of the accepted path to where a plain sequence keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ddtree.tree.build import Tree


@dataclass(frozen=True, slots=True)
class Walk:
    """`path` are the accepted nodes, root first; `bonus` is the target's own token after the last of them."""

    path: list[int]
    bonus: int


def walk(tree: Tree, choose: Callable[[int], int]) -> Walk:
    """Descend from the root while the target's choice after a node is one of its children.

    `choose(node)` gives the target's next token after that node: its arg-max, or one sample of its distribution. It is
    asked once per node on the path and never elsewhere, so every emitted token is the target's own choice given the
    tokens before it: the output has exactly the target's law, whatever the tree, which only decides how many tokens
    one verification yields.
    """
    children = {
        (parent, token): node for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
    }
    path = [0]
    while True:
        token = choose(path[-1])
        child = children.get((path[-1], token))
        if child is None:
            return Walk(path, token)
        path.append(child)


def moves(path: list[int]) -> tuple[int, list[int]]:
    """Where the path stops lying contiguously: (first, sources).

    Node path[i] belongs into row i of the verified block. Rows before `first` are there already; row first + j must be
    copied from row sources[j]. `sources` is empty when nothing moves. As path[i] >= i grows with i, copying in order
    never overwrites a row that is still needed.
    """
    first = next((i for i, node in enumerate(path) if node != i), len(path))
    return first, path[first:]
