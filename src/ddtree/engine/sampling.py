"""The target's next token after each verified row: the arg-max, or a sample of its distribution."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ddtree.engine.api import Sampling
from ddtree.engine.best import argmax


def probabilities(logits: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """The distribution [vocab] that is sampled from: logits [vocab] at a temperature above 0, cut to the nucleus.

    The nucleus is the smallest set of most probable tokens whose mass reaches `top_p`; the rest gets exactly 0.
    """
    p = torch.softmax(logits.float() / temperature, -1)
    if top_p < 1.0:
        ordered, index = p.sort(descending=True)
        ordered[ordered.cumsum(-1) - ordered >= top_p] = 0.0
        p = torch.zeros_like(p).scatter_(-1, index, ordered)
        p /= p.sum()
    return p


def chooser(logits: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> Callable[[int], int]:
    """`choose(row)` for the rows of logits [n, vocab]. A sample is drawn only when its row is asked for."""
    if sampling.temperature == 0.0:
        return argmax(logits).tolist().__getitem__

    def draw(row: int) -> int:
        p = probabilities(logits[row], sampling.temperature, sampling.top_p)
        return int(torch.multinomial(p, 1, generator=generator))

    return draw
