"""Prompt lookup: drafts copied from prompt and output, verified as a chain. No model, no training."""

from __future__ import annotations

from ddtree.engine.decoders.base import Decoder
from ddtree.engine.lookup import NgramIndex
from ddtree.engine.sequence import Sequence
from ddtree.tree import Tree, chain


class PromptLookup(Decoder):
    def __init__(self, draft_tokens: int, ngram_max: int) -> None:
        self._draft_tokens, self._ngram_max = draft_tokens, ngram_max
        self.width = draft_tokens + 1

    def start(self, sequence: Sequence) -> None:
        sequence.ngrams = NgramIndex(self._ngram_max)

    def draft(self, sequences: list[Sequence]) -> list[Tree]:
        return [chain(s.ids[-1], s.ngrams.draft(s.ids, self._draft_tokens)) for s in sequences if s.ngrams is not None]

    def effective(self) -> dict[str, object]:
        return {"draft_tokens": self._draft_tokens, "ngram_max": self._ngram_max}
