"""Shadow mode: trees are built and scored against what the request goes on with, while the chain is verified."""

from __future__ import annotations

import torch

from ddtree.sglang_plugin.tree import Trees, Walks, reached

UNDECIDED = 0


class Shadow:
    """The trees of every request's last L steps, on the device.

    A chain step commits at least one token, so that L steps later all L tokens that a tree can reach are known. `score`
    then gives its accepted drafts + 1, and UNDECIDED in a request's first L - 1 steps. A request's last L - 1 trees are
    never scored.
    """

    def __init__(self, slots: int, depth: int, nodes: int, device: torch.device | str) -> None:
        self.depth, self.nodes = depth, nodes
        self.trees = Trees.empty(slots * depth, nodes, device)
        self.known = torch.zeros(slots, depth, depth + 1, dtype=torch.int64, device=device)  # last column: overflow
        self.counts = torch.zeros(slots, depth, dtype=torch.int64, device=device)
        self.steps = torch.zeros(slots, dtype=torch.int64, device=device)

    def forget(self, slots: torch.Tensor) -> None:
        """New requests take these slots, int64 [R]."""
        self.steps[slots] = 0

    def score(self, slots: torch.Tensor, trees: Trees, walks: Walks) -> torch.Tensor:
        """Keep this step's trees, add what it committed, and score the oldest trees: int32 [R]."""
        slots = slots.long()
        step = self.steps[slots]
        self._keep(slots * self.depth + step % self.depth, trees)
        self.counts[slots, step % self.depth] = 0
        self._append(slots, walks)
        self.steps[slots] = step + 1
        oldest = (step + 1) % self.depth
        kept = self._kept(slots * self.depth + oldest)
        full = torch.full((len(slots),), self.depth, dtype=torch.int32, device=slots.device)
        accepted = reached(kept, self.known[slots, oldest, : self.depth].contiguous(), full)
        return torch.where(step >= self.depth - 1, accepted + 1, UNDECIDED).to(torch.int32)

    def _append(self, slots: torch.Tensor, walks: Walks) -> None:
        counts = self.counts[slots]
        offsets = torch.arange(walks.tokens.shape[1], device=slots.device)
        columns = (counts.unsqueeze(-1) + offsets).clamp(max=self.depth)
        columns = torch.where(offsets < walks.lengths[:, None, None], columns, self.depth)
        tokens = walks.tokens.unsqueeze(1).expand(-1, self.depth, -1)
        self.known[slots] = self.known[slots].scatter(2, columns, tokens)
        self.counts[slots] = counts + walks.lengths.unsqueeze(1)

    def _keep(self, rows: torch.Tensor, trees: Trees) -> None:
        for kept, new in zip(_fields(self.trees), _fields(trees), strict=True):
            kept[rows] = new

    def _kept(self, rows: torch.Tensor) -> Trees:
        return Trees(*(kept[rows] for kept in _fields(self.trees)))


def _fields(trees: Trees) -> tuple[torch.Tensor, ...]:
    return trees.tokens, trees.parents, trees.depths, trees.first_child, trees.next_sibling
