"""DFlash: the drafter's best token at each position, verified as one chain."""

from __future__ import annotations

import torch

from ddtree.engine.decoders.base import Decoder
from ddtree.engine.drafter import Candidates, Drafter
from ddtree.engine.sequence import Sequence
from ddtree.tree import Tree, chain


class DFlash(Decoder):
    def __init__(self, drafter: Drafter, draft_tokens: int | None) -> None:
        """`draft_tokens` of the block's drafts are verified; all of them when None."""
        longest = drafter.block - 1
        if draft_tokens is not None and draft_tokens > longest:
            raise ValueError(f"draft_tokens {draft_tokens} exceeds what the drafter proposes (allowed: 1 to {longest})")
        self.drafter, self.draft_tokens = drafter, draft_tokens or longest
        self.taps = tuple(drafter.taps)
        self.block_size = drafter.block
        self.width = self.draft_tokens + 1

    def start(self, sequence: Sequence) -> None:
        request = sequence.request
        sequence.context = self.drafter.new_context(len(request.input_ids) + request.sampling.max_new_tokens)

    def draft(self, sequences: list[Sequence]) -> list[Tree]:
        found = self.candidates(sequences, self.draft_tokens, 1)
        return [chain(s.ids[-1], [best[0] for best in c.tokens]) for s, c in zip(sequences, found, strict=True)]

    def candidates(self, sequences: list[Sequence], depth: int, topk: int) -> list[Candidates]:
        """Per sequence the drafter's `topk` best tokens at each of the next `depth` positions, in one batch."""
        contexts = [s.context for s in sequences if s.context is not None]
        return self.drafter.draft(contexts, [s.ids[-1] for s in sequences], depth, topk)

    def commit(self, sequences: list[Sequence], features: list[torch.Tensor]) -> None:
        self.drafter.extend([s.context for s in sequences if s.context is not None], features)

    def effective(self) -> dict[str, object]:
        return {"draft_tokens": self.draft_tokens, "draft_window": self.drafter.window}
