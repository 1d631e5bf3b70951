"""DDTree: the drafter's distributions unfolded into the best tree of B nodes, verified in one pass."""

from __future__ import annotations

from ddtree.engine.decoders.dflash import DFlash
from ddtree.engine.drafter import Drafter
from ddtree.engine.sequence import Sequence
from ddtree.engine.shadow import Shadow
from ddtree.tree import Tree, best_first, chain


class DDTree(DFlash):
    """In shadow mode the chain of the whole block is verified and the tree only scored (see `Shadow`)."""

    def __init__(self, drafter: Drafter, budget: int, topk: int, shadow: bool) -> None:
        super().__init__(drafter, None)
        self.budget, self.topk, self.shadow = budget, topk, shadow
        self.width = (self.draft_tokens if shadow else budget) + 1
        # A tree of B nodes is at most B deep, so the head is spared the positions that it cannot reach.
        self.depth = self.draft_tokens if shadow else min(budget, self.draft_tokens)

    def start(self, sequence: Sequence) -> None:
        super().start(sequence)
        sequence.shadow = Shadow() if self.shadow else None

    def draft(self, sequences: list[Sequence]) -> list[Tree]:
        trees = []
        for s, found in zip(sequences, self.candidates(sequences, self.depth, self.topk), strict=True):
            tree = best_first(s.ids[-1], found.tokens, found.log_probs, self.budget)
            if s.shadow is not None:
                s.shadow.watch(tree, len(s.ids) - 1)
                tree = chain(s.ids[-1], [best[0] for best in found.tokens])
            trees.append(tree)
        return trees

    def effective(self) -> dict[str, object]:
        return {
            "budget": self.budget,
            "topk": self.topk,
            "draft_window": self.drafter.window,
            "shadow": self.shadow,
        }
