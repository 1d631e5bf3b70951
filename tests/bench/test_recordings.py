"""Byte-exact recordings of streams, good and bad, read as the client reads them."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.bench.reply import Reply, RequestFailed
from ddtree.bench.sse import EventSplitter

RECORDINGS = Path(__file__).with_name("recordings")
PROMPT_TOKENS = 4

# file -> chunk counts, finish reason, output ids
WHOLE = {
    "several_tokens_per_chunk": ([1, 3, 7], "stop", [11, 12, 13, 14, 15, 16, 2]),
    "final_usage_chunk": ([1, 2, 3], "length", [11, 12]),
    "empty_deltas": ([0, 1, 2, 3, 3], "length", [11, 12, 13]),
    "crlf": ([1, 2], "length", [11, 12]),
    "no_done": ([1, 2], "length", [11, 12]),
}
# file -> failure, a part of its detail, tokens that had arrived
BROKEN = {
    "only_done": ("OnlyDone", "[DONE]", 0),
    "empty": ("EmptyStream", "no bytes", 0),
    "not_a_stream": ("EmptyStream", "try later", 0),
    "truncated": ("Truncated", "after 2 tokens", 2),
    "truncated_with_done": ("Truncated", "after 1 tokens", 1),
    "malformed": ("MalformedEvent", "JSONDecodeError", 1),
    "no_token_count": ("MalformedEvent", "KeyError", 0),
    "count_falls": ("MalformedEvent", "from 2 to 1", 2),
    "bad_ids": ("MalformedEvent", "ValueError", 0),
    "bad_counters": ("MalformedEvent", "KeyError", 0),
    "error_event": ("ServerError", "out of KV cache", 1),
    "aborted": ("Aborted", "aborted", 1),
    "no_tokens": ("NoTokens", "stop", 0),
    "prompt_cut": ("PromptLength", "sent 4 tokens, the server took 3", 0),
}


def read(name: str, cuts: list[int] | None = None) -> Reply:
    """The recording in pieces that end at `cuts`; arrival times count the pieces."""
    raw = (RECORDINGS / f"{name}.sse").read_bytes()
    ends = sorted({min(cut, len(raw)) for cut in cuts or []} | {len(raw)})
    reply = Reply(PROMPT_TOKENS)
    for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        reply.feed(float(number), raw[begin:end])
    reply.close()
    return reply


def test_every_recording_has_its_expectation() -> None:
    assert {path.stem for path in RECORDINGS.glob("*.sse")} == WHOLE.keys() | BROKEN.keys()


@pytest.mark.parametrize("name", WHOLE)
def test_whole_streams_count_tokens_as_the_server_does(name: str) -> None:
    counts, finish, output_ids = WHOLE[name]
    reply = read(name)
    assert [tokens for _, tokens in reply.chunks] == counts
    assert (reply.finish_reason, reply.output_ids) == (finish, output_ids)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_streams_are_typed_failures(name: str) -> None:
    kind, detail, _ = BROKEN[name]
    with pytest.raises(RequestFailed) as failed:
        read(name)
    assert failed.value.type == kind
    assert detail in failed.value.detail


@pytest.mark.parametrize("name", BROKEN)
def test_what_arrived_before_a_failure_is_kept(name: str) -> None:
    reply = Reply(PROMPT_TOKENS)
    with suppress(RequestFailed):
        reply.feed(0.0, (RECORDINGS / f"{name}.sse").read_bytes())
    assert (reply.chunks[-1][1] if reply.chunks else 0) == BROKEN[name][2]


@given(name=st.sampled_from(sorted(WHOLE)), cuts=st.lists(st.integers(0, 1200), max_size=12))
def test_the_pieces_of_the_network_do_not_matter(name: str, cuts: list[int]) -> None:
    whole, pieces = read(name), read(name, cuts)
    assert [tokens for _, tokens in pieces.chunks] == [tokens for _, tokens in whole.chunks]
    assert (pieces.text, pieces.output_ids, pieces.speculation) == (whole.text, whole.output_ids, whole.speculation)


def test_text_and_counters_come_from_the_stream() -> None:
    reply = read("several_tokens_per_chunk")
    assert reply.text == "Grüße 東京\n\n"
    assert reply.id == "r-1"
    assert reply.cached_tokens == 0
    assert reply.speculation is not None
    assert reply.speculation.model_dump() == {
        "verify_steps": 2, "first_tokens": 1, "histogram": [0, 1, 0, 1], "verified_nodes": 16, "shadow_histogram": None,
    }  # fmt: skip
    assert read("no_done").speculation is None


def test_several_data_lines_are_one_event() -> None:
    events = list(EventSplitter().feed(b"data: a\ndata:b\n\n: only a comment\n\ndata: c\n"))
    assert events == [b"a\nb"]


def test_a_line_of_megabytes_is_one_event() -> None:
    line = b"x" * 5_000_000
    splitter, stream = EventSplitter(), b"data: " + line + b"\n\n"
    events = [e for begin in range(0, len(stream), 16384) for e in splitter.feed(stream[begin : begin + 16384])]
    assert events == [line]
