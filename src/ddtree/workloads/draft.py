"""A conversation before it is tokenized, and what a source is asked for and gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from ddtree.models import Message
from ddtree.plan.schema import Workload

T = TypeVar("T")
SLOT = "<<context>>"  # in a draft's opening: where its context is placed, cut to the exact prompt length
DATA = Path(__file__).parent / "data"


class WorkloadError(ValueError):
    """A workload cannot be built; the message is one line for the user."""


@dataclass(frozen=True)
class Draft:
    """`opening` is the first prompt's messages, `later` the user's following turns; SLOT may also stand in `meta`."""

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
        most, source = len(drafts) - asked.warmup, asked.workload.source
        allowed = f"1 to {most}" if most > 0 else "none, since too little text is like that"
        raise WorkloadError(f"prompts: {n} is too many for source {source}; allowed: {allowed}")
    return Drafts(origin, drafts[:n], drafts[n : n + asked.warmup])


def interleaved(rng: random.Random, groups: Iterable[Sequence[T]]) -> list[T]:
    """One of each group in turn, each group shuffled: every beginning of the list is spread evenly over the groups."""
    columns = [[(entry,) for entry in rng.sample(group, len(group))] for group in groups]
    return [entry[0] for row in zip_longest(*columns) for entry in row if entry]


def spread(asked: Asked, drafts: Sequence[Draft], origin: str) -> Drafts:
    """`shares` of the drafts, shuffled and spread evenly over their categories."""
    categories = dict.fromkeys(draft.category for draft in drafts)
    groups = [[draft for draft in drafts if draft.category == category] for category in categories]
    return shares(asked, interleaved(asked.random(), groups), origin)
