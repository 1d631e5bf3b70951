"""Shadow mode: trees that are built and scored, but not verified."""

from __future__ import annotations

from ddtree.tree import Tree, walk

UNKNOWN = -1  # no token


class Shadow:
    """Histogram of what the trees of one request would have accepted, had they been verified.

    Each verification of the chain brings one tree, drafted from the same root. A tree may reach deeper than the chain
    was right, so it is scored against the tokens that the request really goes on with, once enough of them are known:
    the walk ends at the first of them that is no child. At temperature 0 these are the tokens that its verification
    would have found, and above it they have the same law. The end of the request ends the walk, as it ends a real one.
    The roots are those that the chain visits; real trees accept more per step and so visit fewer.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[Tree, int]] = []  # tree, index of the token after its root
        self._histogram: list[int] = []

    def watch(self, tree: Tree, root: int) -> None:
        """Score `tree` from now on; its root is the token at index `root` of the sequence."""
        self._pending.append((tree, root + 1))

    def settle(self, ids: list[int], over: bool) -> list[int]:
        """Score every tree whose walk the tokens `ids` decide, all of them when the request is `over`."""
        undecided = []
        for tree, start in self._pending:
            known = ids[start : start + max(tree.depths) + 1]
            accepted = _reach(tree, known)
            if accepted == len(known) and not over:
                undecided.append((tree, start))
            else:
                self._histogram.extend([0] * (accepted + 1 - len(self._histogram)))
                self._histogram[accepted] += 1
        self._pending = undecided
        return list(self._histogram)


def _reach(tree: Tree, known: list[int]) -> int:
    """How many of the tokens `known` the tree's walk follows."""

    def choose(node: int) -> int:
        depth = tree.depths[node]
        return known[depth] if depth < len(known) else UNKNOWN

    return len(walk(tree, choose).path) - 1
