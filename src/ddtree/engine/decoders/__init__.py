"""The decoding methods, one module each, and their defaults."""

from __future__ import annotations

from typing import get_args

from ddtree.engine.api import Settings
from ddtree.engine.decoders.autoregressive import Autoregressive
from ddtree.engine.decoders.base import Decoder
from ddtree.engine.decoders.ddtree import DDTree
from ddtree.engine.decoders.dflash import DFlash
from ddtree.engine.decoders.prompt_lookup import PromptLookup
from ddtree.engine.drafter import Drafter
from ddtree.engine.target import Target
from ddtree.plan.schema import METHOD_KEYS, TREE_TOPK, Method

__all__ = ["MAX_WIDTH", "Decoder", "check", "make_decoder"]

LOOKUP_DRAFT_TOKENS, LOOKUP_NGRAM_MAX = 8, 3
MAX_WIDTH = 256  # rows of one verification, and of a drafter's block


def check(settings: Settings) -> None:
    """ValueError, one line, when the settings do not describe a method; nothing is loaded."""
    if settings.method not in get_args(Method):
        raise ValueError(f"method {settings.method!r} is unknown (allowed: {', '.join(get_args(Method))})")
    for key, methods in METHOD_KEYS.items():
        value = getattr(settings, key)
        if value and settings.method not in methods:
            raise ValueError(f"{key} belongs to method {' or '.join(sorted(methods))}, not {settings.method}")
        if value is not None and value is not False and value < 1:
            raise ValueError(f"{key} is {value} (allowed: 1 or more)")
        if key in ("draft_tokens", "budget") and value and value >= MAX_WIDTH:
            raise ValueError(f"{key} is {value} (allowed: 1 to {MAX_WIDTH - 1})")
    if settings.method == "ddtree" and settings.budget is None:
        raise ValueError("method ddtree needs a budget (allowed: 1 or more nodes)")
    if settings.method in ("dflash", "ddtree") and settings.drafter is None:
        raise ValueError(f"method {settings.method} needs a drafter")


def make_decoder(settings: Settings, target: Target, positions: int) -> Decoder:
    """The decoder that `settings` ask for; ValueError when its drafter does not fit the target."""
    s = settings
    if s.method == "autoregressive":
        return Autoregressive()
    if s.method == "prompt_lookup":
        return PromptLookup(s.draft_tokens or LOOKUP_DRAFT_TOKENS, s.ngram_max or LOOKUP_NGRAM_MAX)
    assert s.drafter is not None
    drafter = Drafter(s.drafter, target, s.draft_window, positions)
    if s.method == "dflash":
        return DFlash(drafter, s.draft_tokens)
    assert s.budget is not None
    return DDTree(drafter, s.budget, s.topk or TREE_TOPK, s.shadow)
