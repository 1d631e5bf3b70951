"""One request's growing answer: ids, text without half characters, stop strings, and the counters that go with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ddtree.engine.api import Counters, Progress
from ddtree.engine.detokenizer import Detokenizer

Finish = dict[str, object]


@dataclass
class Answer:
    rid: str
    prompt_tokens: int
    stop: Sequence[str]
    detokenizer: Detokenizer

    def __post_init__(self) -> None:
        self.ids: list[int] = []
        self.finish: Finish | None = None
        self.counters: Counters | None = None
        self._text = ""
        self._longest = max((len(stop) for stop in self.stop), default=0)

    @property
    def text(self) -> str:
        """The text that is certain: while the answer grows, what may become a stop string is held back."""
        if self.finish is not None or not self.stop:
            return self._text
        for held in range(min(self._longest - 1, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-held:]) for stop in self.stop):
                return self._text[:-held]
        return self._text

    def take(self, progress: Progress) -> None:
        """Add what one step produced. A stop string ends the answer at the token that completes it."""
        for kept, token in enumerate(progress.new_ids, 1):
            self.ids.append(token)
            if progress.finish == "stop" and kept == len(progress.new_ids):
                break  # the stop token itself is no text
            if matched := self._grow(self.detokenizer.push(token)):
                self._count(progress.counters, kept, len(progress.new_ids))
                self.finish = {"type": "stop", "matched": matched}
                return
        self._count(progress.counters)
        if progress.finish is None:
            return
        self._text += self.detokenizer.flush()
        self.finish = {"type": progress.finish}
        if progress.finish == "stop":
            self.finish["matched"] = self.ids[-1]
        if progress.finish == "length":
            self.finish["length"] = len(self.ids)

    def meta(self) -> dict[str, object]:
        """SGLang's meta_info, with the counters of speculative methods."""
        meta: dict[str, object] = {
            "id": self.rid,
            "finish_reason": self.finish,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": len(self.ids),
            "cached_tokens": 0,  # every prompt is computed from its first token on
        }
        if (counters := self.counters) is not None:
            decoded = len(self.ids) - counters.first_tokens
            meta |= {
                "spec_verify_ct": counters.verify_steps,
                "spec_accept_histogram": counters.histogram,
                "spec_verified_nodes": counters.verified_nodes,
                "spec_first_tokens": counters.first_tokens,
                "spec_accept_length": decoded / counters.verify_steps if counters.verify_steps else None,
            }
            if counters.shadow_histogram is not None:
                meta["spec_shadow_histogram"] = counters.shadow_histogram
        return meta

    def _grow(self, piece: str) -> str | None:
        """Append `piece`; the stop string that it completes, if any, is cut off and returned."""
        begin = max(0, len(self._text) - self._longest + 1)
        self._text += piece
        found = [(at, stop) for stop in self.stop if (at := self._text.find(stop, begin)) >= 0]
        if not found:
            return None
        at, matched = min(found)
        self._text = self._text[:at]
        return matched

    def _count(self, counters: Counters | None, kept: int = 0, made: int = 0) -> None:
        """Take over the engine's counters. When only the `kept` first of a step's `made` tokens count, all of these are
        drafts: the step accepted that many, and its bonus token is gone."""
        if counters is not None and kept < made:
            before = self.counters.histogram if self.counters else []
            steps = enumerate(zip_longest(counters.histogram, before, fillvalue=0))
            accepted = next(depth for depth, (now, then) in steps if now > then)
            histogram = list(counters.histogram)
            histogram[accepted] -= 1
            histogram[kept] += 1
            counters = replace(counters, histogram=histogram)
        self.counters = counters if counters is not None else self.counters
