"""One request while it runs: its tokens, its caches, when it ends, and what speculation did for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ddtree.engine.api import Counters, GenRequest
from ddtree.engine.cache import KVCache
from ddtree.engine.drafter import DraftContext
from ddtree.engine.lookup import NgramIndex
from ddtree.engine.shadow import Shadow
from ddtree.tree import Tree, Walk


@dataclass
class Sequence:
    """`ids` are prompt and output; all but the last are in the K/V cache once the prompt has been read."""

    request: GenRequest
    cache: KVCache
    generator: torch.Generator
    stop_ids: frozenset[int]
    ids: list[int] = field(init=False)
    context: DraftContext | None = None  # DFlash and DDTree
    ngrams: NgramIndex | None = None  # prompt lookup
    shadow: Shadow | None = None  # DDTree in shadow mode
    verify_steps: int = 0
    first_tokens: int = 0
    verified_nodes: int = 0
    histogram: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = list(self.request.input_ids)

    @property
    def prefilled(self) -> bool:
        return self.cache.length > 0

    @property
    def finish(self) -> str | None:
        """Why the sequence is over, if it is. A stop token ends it even where the limit would have."""
        if len(self.ids) == len(self.request.input_ids):
            return None
        if self.ids[-1] in self.stop_ids:
            return "stop"
        generated = len(self.ids) - len(self.request.input_ids)
        return "length" if generated >= self.request.sampling.max_new_tokens else None

    def append(self, tokens: list[int]) -> list[int]:
        """Append tokens up to the first one that ends the sequence; return those that were kept."""
        for kept, token in enumerate(tokens, 1):
            self.ids.append(token)
            if self.finish:
                return tokens[:kept]
        return tokens

    def read_prompt(self, first: int) -> list[int]:
        """The prompt has been read and the target's first token is known."""
        self.first_tokens = 1
        return self.append([first])

    def verified(self, tree: Tree, walk: Walk) -> list[int]:
        """A verification is over: append what it yields and count it. Tokens that are cut off are not counted."""
        drafts = [tree.tokens[node] for node in walk.path[1:]]
        kept = self.append([*drafts, walk.bonus])
        accepted = min(len(drafts), len(kept))
        self.histogram.extend([0] * (accepted + 1 - len(self.histogram)))
        self.histogram[accepted] += 1
        self.verify_steps += 1
        self.verified_nodes += len(tree)
        return kept

    def counters(self) -> Counters:
        shadow = self.shadow.settle(self.ids, self.finish is not None) if self.shadow else None
        return Counters(self.verify_steps, self.first_tokens, list(self.histogram), self.verified_nodes, shadow)
