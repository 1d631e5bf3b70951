"""Drafts without a model: what followed the latest earlier occurrence of the current n-gram."""

from __future__ import annotations


class NgramIndex:
    """Where each n-gram (1 to `longest` tokens) of a growing token list last ended, its final one left out."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._ends: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def draft(self, ids: list[int], n: int) -> list[int]:
        """`n` tokens that may follow `ids`, or none. `ids` must extend the list of the call before.

        The longest matching n-gram decides. A match near the end goes on with the drafts themselves, so a loop of the
        text is continued however short it is.
        """
        for end in range(self._indexed + 1, len(ids)):
            for size in range(1, min(self._longest, end) + 1):
                self._ends[tuple(ids[end - size : end])] = end
        self._indexed = max(self._indexed, len(ids) - 1)
        for size in range(min(self._longest, len(ids)), 0, -1):
            found = self._ends.get(tuple(ids[-size:]))
            if found is not None:
                text = ids[found:]
                for i in range(n):
                    text.append(text[i])
                return text[:n]
        return []
