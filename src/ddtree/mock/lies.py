"""The lies, and the streams that tell them: a stream is a list of beats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddtree.mock.script import STOP_ID, Script

# name -> what a client meets. Some are told by the server, not by a stream.
LIES = {
    "final_usage": "the last tokens are counted by a final chunk without text only",
    "only_done": "status 200 and nothing but [DONE]",
    "empty_stream": "status 200 and not one byte",
    "empty_deltas": "chunks without text whose token count grows",
    "reasoning_content": "the first half of the answer is not in the text but in a field `reasoning_content`",
    "reasoning": "the same in a field `reasoning`",
    "tokens_after_eos": "an accepted run goes on after the end-of-text token",
    "inflated_count": "more tokens are counted than were generated",
    "delta_ids": "each chunk has only its own ids instead of all so far",
    "count_falls": "the token count falls within the stream",
    "prompt_cut": "the prompt is silently cut by one token",
    "malformed": "an event that is no JSON",
    "error_event": "status 200, and an error as an event",
    "truncated": "the stream ends in the middle without a finish reason",
    "hang": "the stream stops in the middle and stays open",
    "slow_chunks": "every event comes byte by byte in pieces that cut lines and characters",
    "huge_chunk": "the whole answer in one event of megabytes",
    "cache_hits": "prompts are found in a prefix cache that was said to be empty",
    "flush_refused": "the prefix cache cannot be emptied",
    "drift": "every request is slower than the one before",
    "status_500": "status 500",
    "status_429": "status 429",
    "reset": "the connection is reset in the middle of the stream",
    "connection_limit": "only 100 requests are served at once, the others wait unseen",
    "old_process": "another process, with another nonce, answers",
    "changed_flags": "/server_info says another setting than was asked for",
}
STATUS = {"status_500": 500, "status_429": 429}
HUGE_BYTES = 4_000_000
FOUND_IN_CACHE = 1


@dataclass(frozen=True)
class Beat:
    at_s: float  # after the request came
    data: bytes
    tokens: int  # generated so far, in truth


@dataclass(frozen=True)
class Asked:
    rid: str
    input_ids: Sequence[int]
    limit: int  # max_new_tokens
    number: int  # how many requests came before


def native(script: Script, asked: Asked, lie: str | None) -> Iterator[Beat]:
    """The stream of /generate."""
    if lie == "empty_stream":
        return
    if lie == "only_done":
        yield Beat(script.first_s, b"data: [DONE]\n\n", 0)
        return
    steps = script.steps(asked.limit, asked.number)
    if lie == "huge_chunk":
        steps = steps[-1:]
    before = 0
    for i, (at, tokens) in enumerate(steps):
        last = i == len(steps) - 1
        if i == (len(steps) + 1) // 2 and lie in ("truncated", "reset", "hang", "malformed", "error_event"):
            broken = {"malformed": b"data: {no json\n\n", "error_event": _sse({"error": {"message": "out of memory"}})}
            if lie in broken:
                yield Beat(at, broken[lie], before)
            return
        yield from _told(_event(script, asked, lie, before, tokens, last), at, tokens, lie)
        before = tokens
    yield Beat(steps[-1][0], b"data: [DONE]\n\n", before)


def _told(event: dict[str, object], at: float, tokens: int, lie: str | None) -> Iterator[Beat]:
    data = _sse(event)
    if lie == "slow_chunks":
        yield from (Beat(at, data[i : i + 1], tokens) for i in range(len(data)))
    else:
        yield Beat(at, data, tokens)


def _event(script: Script, asked: Asked, lie: str | None, before: int, tokens: int, last: bool) -> dict[str, object]:
    ids = script.ids(asked.input_ids, tokens)
    shown = script.ids(asked.input_ids, before) if lie in ("final_usage", "empty_deltas") and last else ids
    text, extra = "".join(map(chr, shown)), dict[str, object]()
    if lie == "empty_deltas" and not last:
        text = ""
    if lie in ("reasoning", "reasoning_content"):
        thought = min(script.tokens, asked.limit) // 2
        text, extra = text[thought:], {lie: text[:thought]}
    if lie == "tokens_after_eos" and last:
        ids = [*ids[:-2], STOP_ID, ids[-1]]
    if lie == "delta_ids":
        ids = ids[before:]
    if lie == "huge_chunk":
        text = "#" * HUGE_BYTES
    counted = {"inflated_count": tokens * 2, "count_falls": tokens - before if last else tokens}.get(lie or "", tokens)
    meta = {
        "id": asked.rid,
        "finish_reason": {"type": "length", "length": tokens} if last else None,
        "prompt_tokens": len(asked.input_ids) - (lie == "prompt_cut"),
        "completion_tokens": counted,
        "cached_tokens": FOUND_IN_CACHE if lie == "cache_hits" else 0,
    }
    return {"text": text, "output_ids": ids, "meta_info": meta, **extra}


def chat(script: Script, asked: Asked, lie: str | None) -> Iterator[Beat]:
    """The stream of /v1/chat/completions: deltas, then usage in a chunk without choices, then [DONE]."""
    yield from _openai(script, asked, lie, "chat.completion.chunk")


def completions(script: Script, asked: Asked, lie: str | None) -> Iterator[Beat]:
    """The stream of /v1/completions: as `chat`, with texts in place of deltas."""
    yield from _openai(script, asked, lie, "text_completion")


def _openai(script: Script, asked: Asked, lie: str | None, kind: str) -> Iterator[Beat]:
    steps = script.steps(asked.limit, asked.number)
    before, thought = 0, min(script.tokens, asked.limit) // 2 if lie in ("reasoning", "reasoning_content") else 0
    for i, (at, tokens) in enumerate(steps):
        new = "".join(map(chr, script.ids(asked.input_ids, tokens)[before:]))
        field = lie if lie and before < thought else "content"
        finish = "length" if i == len(steps) - 1 else None
        said: dict[str, object] = {"text": new} if kind == "text_completion" else {"delta": {field: new}}
        choice = {"index": 0, **said, "finish_reason": finish}
        yield Beat(at, _sse({"id": asked.rid, "object": kind, "choices": [choice]}), tokens)
        before = tokens
    usage = {"prompt_tokens": len(asked.input_ids), "completion_tokens": before}
    usage["total_tokens"] = sum(usage.values())
    yield Beat(
        steps[-1][0],
        _sse({"id": asked.rid, "object": kind, "choices": [], "usage": usage}) + b"data: [DONE]\n\n",
        before,
    )


def _sse(event: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"
