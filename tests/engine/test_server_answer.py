from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_pair
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models

from ddtree.engine.answer import Answer
from ddtree.engine.api import Counters, Progress
from ddtree.engine.detokenizer import Vocabulary
from ddtree.models import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One token per byte."""
    return Tokenizer(tiny_pair(tmp_path_factory.mktemp("pair"))[0])


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer)


@given(ids=st.lists(st.integers(0, 330), max_size=60))
def test_streamed_text_is_the_decoded_text_for_any_ids(
    ids: list[int], tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    detokenizer = vocabulary.detokenizer()
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == tokenizer.decode(ids)


@given(text=st.text(max_size=40))
def test_no_half_character_is_ever_emitted(text: str, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    detokenizer, shown = vocabulary.detokenizer(), ""
    for token in tokenizer.encode(text):
        shown += detokenizer.push(token)
        assert text.startswith(shown)
    assert shown == text


def test_other_decoders_stream_too(tmp_path: Path) -> None:
    """Llama 2's kind: spaces as U+2581, unknown characters as bytes."""
    pieces = ["<unk>", "\u2581hi", "\u2581there", "!", *(f"<0x{byte:02X}>" for byte in range(256))]
    inner = Inner(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], byte_fallback=True))
    inner.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text("{}")
    detokenizer = Vocabulary(Tokenizer(tmp_path)).detokenizer()
    ids = [1, 2, *(4 + byte for byte in "é".encode()), 3]
    assert [detokenizer.push(token) for token in ids] == ["hi", " there", "", "é", "!"]


def run(tokenizer: Tokenizer, vocabulary: Vocabulary, steps: list[Progress], stop: tuple[str, ...]) -> Answer:
    answer = Answer("r", 1, stop, vocabulary.detokenizer())
    seen = [""]
    for step in steps:
        answer.take(step)
        assert answer.text.startswith(seen[-1])
        seen.append(answer.text)
        if answer.finish:
            break
    return answer


@given(
    text=st.text("ab", min_size=1, max_size=30),
    stop=st.lists(st.text("ab", min_size=1, max_size=3), max_size=2),
    sizes=st.lists(st.integers(1, 4), min_size=30, max_size=30),
)
def test_stop_strings_cut_where_a_look_at_the_whole_text_would(
    text: str, stop: list[str], sizes: list[int], tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    ids, steps = iter(tokenizer.encode(text)), []
    while new := list(itertools.islice(ids, sizes[len(steps)])):
        steps.append(Progress("r", new, None, None))
    steps[-1] = Progress("r", steps[-1].new_ids, "length", None)
    answer = run(tokenizer, vocabulary, steps, tuple(stop))
    # The first token after which any stop string is there decides; of several that it completes, the earliest.
    for n in range(1, len(text) + 1):
        if hits := [(text[:n].find(s), s) for s in stop if s in text[:n]]:
            at, matched = min(hits)
            assert (answer.text, answer.finish) == (text[:at], {"type": "stop", "matched": matched})
            assert answer.ids == tokenizer.encode(text[:n])
            return
    assert (answer.text, answer.finish) == (text, {"type": "length", "length": len(text)})


def test_text_that_may_become_a_stop_string_is_held_back(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    answer = Answer("r", 1, ("</end>",), vocabulary.detokenizer())
    shown = []
    for character in "a</enough":
        answer.take(Progress("r", tokenizer.encode(character), None, None))
        shown.append(answer.text)
    assert shown == ["a", "a", "a", "a", "a", "a</eno", "a</enou", "a</enoug", "a</enough"]


def test_tokens_behind_a_stop_string_are_not_counted(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    first = Progress("r", tokenizer.encode("a"), None, Counters(0, 1, [0, 0, 0, 0], 0))
    second = Progress("r", tokenizer.encode("bc"), None, Counters(1, 1, [0, 1, 0, 0], 5))
    third = Progress("r", tokenizer.encode("xyz!"), None, Counters(2, 1, [0, 1, 0, 1], 10))
    answer = run(tokenizer, vocabulary, [first, second, third], ("xy",))
    meta = answer.meta()
    assert (answer.text, meta["completion_tokens"]) == ("abc", 5)
    # The last step had accepted three drafts; two of them stand, and its bonus token does not.
    assert meta["spec_accept_histogram"] == [0, 1, 1, 0]
    assert (meta["spec_verify_ct"], meta["spec_verified_nodes"], meta["spec_accept_length"]) == (2, 10, 2.0)


def test_stop_string_at_the_bonus_token_leaves_the_counters(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    step = Progress("r", tokenizer.encode("xyz"), None, Counters(1, 0, [0, 0, 1], 4))
    assert run(tokenizer, vocabulary, [step], ("z",)).meta()["spec_accept_histogram"] == [0, 0, 1]


def test_unfinished_character_shows_only_at_the_end(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    answer = Answer("r", 1, (), vocabulary.detokenizer())
    half = tokenizer.encode("é")[:1]
    answer.take(Progress("r", half, None, None))
    assert answer.text == ""
    answer.take(Progress("r", [], "abort", None))
    assert (answer.text, answer.finish) == ("\ufffd", {"type": "abort"})


def test_without_speculation_there_are_no_counters(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    answer = run(tokenizer, vocabulary, [Progress("r", tokenizer.encode("a"), "length", None)], ())
    assert not [key for key in answer.meta() if key.startswith("spec_")]
