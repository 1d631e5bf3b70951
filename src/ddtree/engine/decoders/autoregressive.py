"""One token per forward pass: the baseline. In the engine's terms, a tree that is only its root."""

from __future__ import annotations

from ddtree.engine.decoders.base import Decoder
from ddtree.engine.sequence import Sequence
from ddtree.tree import Tree, chain


class Autoregressive(Decoder):
    speculative = False
    width = 1

    def draft(self, sequences: list[Sequence]) -> list[Tree]:
        return [chain(sequence.ids[-1], ()) for sequence in sequences]
