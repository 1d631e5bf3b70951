"""What the mock server answers and when: fixed before the first request, so that a client's numbers have a truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STOP_ID = 2
FIRST_ID, ID_COUNT = 65, 26  # ids are the code points of capital letters: the text has one character per token


@dataclass(frozen=True)
class Script:
    """Every answer has `tokens` tokens (or fewer, if fewer were asked for), the first alone after `first_s` seconds,
    then `per_step` at a time every `step_s` seconds. `drift`: by which share the seconds grow with every request."""

    tokens: int = 64
    per_step: int = 4
    first_s: float = 0.05
    step_s: float = 0.02
    drift: float = 0.0

    def steps(self, limit: int, request: int = 0) -> list[tuple[float, int]]:
        """(seconds after the request came, tokens so far) of every step of the `request`-th request."""
        end, slower = min(self.tokens, limit), 1 + self.drift * request
        counts = [1, *range(1 + self.per_step, end, self.per_step), *([end] if end > 1 else [])]
        return [((self.first_s + i * self.step_s) * slower, count) for i, count in enumerate(counts)]

    def ids(self, input_ids: Sequence[int], count: int) -> list[int]:
        """The same prompt has the same answer."""
        begin = sum(input_ids)
        return [FIRST_ID + (begin + i) % ID_COUNT for i in range(count)]
