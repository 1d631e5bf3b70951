"""A conversation before it is tokenized, and what a source is asked for and gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ddtree.models import Message
from ddtree.plan.schema import Workload

SLOT = "<<context>>"  # in a draft's opening: where its context is placed, cut to the exact prompt length
DATA = Path(__file__).parent / "data"


class WorkloadError(ValueError):
    """A workload cannot be built; the message is one line for the user."""


@dataclass(frozen=True)
class Draft:
    """`opening` is the first prompt's messages, `later` the user's following turns."""

    id: str
    category: str
    opening: tuple[Message, ...]
    later: tuple[str, ...] = ()
    context: str = ""
    meta: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drafts:
    origin: str  # where the text comes from and its licence, for the report
    measured: list[Draft]
    warmup: list[Draft]


@dataclass(frozen=True)
class Asked:
    """What a source must deliver: `workload.prompts` measured drafts and `warmup` others."""

    workload: Workload
    warmup: int
    seed: str  # of this workload in this plan

    def random(self) -> random.Random:
        return random.Random(self.seed)


Source = Callable[[Asked], Drafts]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def shares(asked: Asked, drafts: list[Draft], origin: str) -> Drafts:
    """The first drafts are measured, the next ones warm up; WorkloadError if there are too few."""
    n = asked.workload.prompts
    if len(drafts) < n + asked.warmup:
        most = len(drafts) - asked.warmup
        raise WorkloadError(f"prompts: {n} is too many for source {asked.workload.source}; allowed: 1 to {most}")
    return Drafts(origin, drafts[:n], drafts[n : n + asked.warmup])
