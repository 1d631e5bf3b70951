"""Splits an answer at the model's own end-of-thinking marker, which its tokenizer and chat template give away.

Markers that are special tokens are missing from an answer's text, so its token ids are searched as well.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from ddtree.bench.records import PromptSet, Request
from ddtree.models import Tokenizer

# </think>, [/THINK], </seed:think>, <|END_THINKING|>, <|end_of_thought|>
_END = re.compile(r"[<\[◁]\|?(/|end_(?:of_)?)[\w:]*(?:think|thought|reason)\w*\|?[>\]▷]", re.I)
_OPPOSITES = {"/": ("",), "end_": ("start_", "begin_"), "end_of_": ("start_of_", "begin_of_")}
TAIL = 16  # tokens at the end of a prompt among which an opened thinking part shows


@dataclass(frozen=True)
class Markers:
    """The texts around a model's thoughts."""

    start: str = "<think>"
    end: str = "</think>"


CHANNELS = Markers("<|channel|>analysis<|message|>", "<|channel|>final<|message|>")  # OpenAI's harmony format


def markers(tokenizer: Tokenizer) -> Markers:
    """Those of the tokenizer's added tokens, else of its chat template, else `<think>` and `</think>`."""
    known = " ".join([*tokenizer.added_tokens, tokenizer.chat_template])
    for found in _END.finditer(known):
        for opposite in _OPPOSITES[found[1].lower()]:
            start = found[0].replace(found[1], opposite.upper() if found[1].isupper() else opposite, 1)
            if start in known:
                return Markers(start, found[0])
    return CHANNELS if "<|channel|>" in known else Markers()


@dataclass(frozen=True)
class Thinking:
    """How one model thinks. `opened`: its chat template has already written the start marker."""

    tokenizer: Tokenizer
    markers: Markers
    opened: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, prompts: PromptSet) -> Thinking:
        found = markers(tokenizer)
        tail = tokenizer.decode(prompts.conversations[0].turns[0][-TAIL:], skip_special_tokens=False)
        return cls(tokenizer, found, tail.rstrip().endswith(found.start))

    def answer(self, request: Request) -> str | None:
        """The text after the thoughts; None when they do not end."""
        end, ids = self.markers.end, request.output_ids
        if end in request.text:
            return request.text.split(end, 1)[1]
        whole = self._spoken(ids)
        if end in whole:
            first = bisect_left(range(len(ids)), True, key=lambda n: end in self._spoken(ids[:n]))
            return self.tokenizer.decode(ids[first:])
        begun = any(text.lstrip().startswith(self.markers.start) for text in (request.text, whole))
        cut = request.finish_reason == "length"
        return None if begun or (self.opened and cut) else request.text

    def _spoken(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)
