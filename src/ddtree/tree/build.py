"""The draft tree: the B most probable prefixes of a product of per-depth distributions (DDTree, arXiv 2604.12989)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of N = B + 1 tokens. Node 0 is the root, the last token that is already certain; its parent is -1.

    Nodes are numbered best first, so a parent precedes its children, a better sibling precedes a worse one, and the
    first n nodes are the tree of budget n - 1.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)


def chain(root: int, drafts: Sequence[int]) -> Tree:
    """The tree without branches: each draft is the child of the one before it."""
    n = len(drafts) + 1
    return Tree((root, *drafts), tuple(range(-1, n - 1)), tuple(range(n)))


def best_first(root: int, tokens: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]], budget: int) -> Tree:
    """Take the `budget` best nodes, where a node is a rank per depth and its score the sum of those log-probs.

    `tokens[d][r]` and `log_probs[d][r]` describe rank r at depth d + 1; each row of `log_probs` is sorted downwards and
    not above 0. Ties go to the smaller depth, then to the lexicographically smaller ranks, which makes the order total:
    a node follows its parent and its left sibling, so offering one child and one sibling per node taken is exact.
    Fewer nodes are returned when the whole product has fewer.
    """
    chosen, parents, depths = [root], [-1], [0]
    if budget < 1 or not log_probs or not log_probs[0]:
        return chain(root, ())
    # (-score, depth, ranks, parent, parent's score)
    heap: list[tuple[float, int, tuple[int, ...], int, float]] = [(-log_probs[0][0], 1, (0,), 0, 0.0)]
    while heap and len(chosen) <= budget:
        cost, depth, ranks, parent, base = heapq.heappop(heap)
        node, rank, row = len(chosen), ranks[-1], log_probs[depth - 1]
        chosen.append(tokens[depth - 1][rank])
        parents.append(parent)
        depths.append(depth)
        if rank + 1 < len(row):
            heapq.heappush(heap, (base - row[rank + 1], depth, (*ranks[:-1], rank + 1), parent, base))
        if depth < len(log_probs) and log_probs[depth]:
            heapq.heappush(heap, (cost - log_probs[depth][0], depth + 1, (*ranks, 0), node, cost))
    return Tree(tuple(chosen), tuple(parents), tuple(depths))
