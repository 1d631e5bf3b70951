"""What a decoding method adds to the engine's step: drafts before the target's pass, bookkeeping after it."""

from __future__ import annotations

import torch

from ddtree.engine.sequence import Sequence
from ddtree.tree import Tree


class Decoder:
    width: int  # most rows that one verification of one request takes
    taps: tuple[int, ...] = ()  # target layers whose output the method wants to see
    speculative = True
    block_size: int | None = None  # of the drafter, where there is one

    def start(self, sequence: Sequence) -> None:
        """Prepare the method's own state of a new request."""

    def draft(self, sequences: list[Sequence]) -> list[Tree]:
        """One tree per sequence, rooted in its last token, for the target to verify."""
        raise NotImplementedError

    def commit(self, sequences: list[Sequence], features: list[torch.Tensor]) -> None:
        """Newly committed tokens: per sequence the target's residual streams [n, len(taps) * hidden] at them."""

    def effective(self) -> dict[str, object]:
        """The settings that this method reads, as they are in force."""
        return {}
