from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ddtree.engine.lookup import NgramIndex

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def naive(ids: list[int], longest: int, n: int) -> list[int]:
    for size in range(min(longest, len(ids)), 0, -1):
        for end in range(len(ids) - 1, size - 1, -1):
            if ids[end - size : end] == ids[-size:]:
                text = list(ids)
                while len(text) < len(ids) + n:
                    text.append(text[end + len(text) - len(ids)])
                return text[len(ids) :]
    return []


@given(TOKENS, st.integers(1, 4), st.integers(1, 9), st.data())
def test_drafts_follow_the_latest_occurrence_of_the_longest_ngram(
    ids: list[int], longest: int, n: int, data: st.DataObject
) -> None:
    index, seen = NgramIndex(longest), 0
    while seen < len(ids):
        seen += data.draw(st.integers(1, len(ids) - seen))
        assert index.draft(ids[:seen], n) == naive(ids[:seen], longest, n)


def test_a_loop_is_continued_beyond_its_period() -> None:
    assert NgramIndex(3).draft([7, 8, 9, 8, 9], 6) == [8, 9, 8, 9, 8, 9]


def test_nothing_is_drafted_for_a_token_never_seen_before() -> None:
    assert NgramIndex(3).draft([1, 2, 3], 4) == []
