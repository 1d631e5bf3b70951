"""One request's stream, folded into what its record holds. No network here: recorded bytes can be replayed."""

from __future__ import annotations

import json

from ddtree.bench.meta import speculation
from ddtree.bench.records import Speculation
from ddtree.bench.sse import EventSplitter
from ddtree.redaction import redact

SHOWN_BYTES = 300


class RequestFailed(Exception):
    """A typed failure; `type` becomes records.Failure.type."""

    def __init__(self, type: str, detail: str = ""):
        super().__init__(f"{type}: {detail}")
        self.type, self.detail = type, detail


class Reply:
    """Feed (arrival time, bytes), then `close`. Raises RequestFailed for every way in which a stream can be wrong; what
    had arrived until then stays readable."""

    def __init__(self, input_tokens: int, stop_token_ids: frozenset[int] = frozenset()) -> None:
        self.chunks: list[tuple[float, int]] = []
        self.finish_reason: str | None = None
        self.output_ids: list[int] = []
        self.text = ""
        self.id: str | None = None  # the server's name for the request: what an abort needs
        self.cached_tokens: int | None = None
        self.speculation: Speculation | None = None
        self._input_tokens, self._stop_token_ids = input_tokens, stop_token_ids
        self._events = EventSplitter()
        self._done = False
        self._beginning = b""

    def feed(self, at: float, piece: bytes) -> None:
        if len(self._beginning) < SHOWN_BYTES:
            self._beginning += piece[:SHOWN_BYTES]
        for event in self._events.feed(piece):
            if event == b"[DONE]":
                self._done = True
            else:
                self._take(at, event)

    def close(self) -> None:
        """The stream has ended: was it whole?"""
        if self.finish_reason == "abort":
            raise RequestFailed("Aborted", "the server aborted the request")
        if self.finish_reason is not None:
            if not self.chunks[-1][1]:
                raise RequestFailed("NoTokens", f"finished ({self.finish_reason}) without a token")
            self._check_ids()
            return
        if self.chunks:
            raise RequestFailed("Truncated", f"ended after {self.chunks[-1][1]} tokens without a finish reason")
        if self._done:
            raise RequestFailed("OnlyDone", "nothing but [DONE]")
        raise RequestFailed("EmptyStream", shown(self._beginning) or "no bytes")

    def _check_ids(self) -> None:
        """A trailing stop token may be counted and not given; nothing may follow one. No ids, no check."""
        counted, given = self.chunks[-1][1], len(self.output_ids)
        if given and not given <= counted <= given + 1:
            raise RequestFailed("CountDiffers", f"{counted} tokens counted, {given} ids given")
        if not self._stop_token_ids.isdisjoint(self.output_ids[:-1]):
            raise RequestFailed("TokensAfterStop", "the answer goes on after a stop token")

    def _take(self, at: float, event: bytes) -> None:
        try:
            data = json.loads(event)
            if "error" in data:
                raise RequestFailed("ServerError", shown(json.dumps(data["error"]).encode()))
            meta = data["meta_info"]
            tokens, prompt_tokens = int(meta["completion_tokens"]), int(meta.get("prompt_tokens", self._input_tokens))
            reason = meta.get("finish_reason")
            reason = str(reason["type"]) if reason is not None else None
            output_ids = [int(token) for token in data.get("output_ids") or self.output_ids]
            cached = meta.get("cached_tokens", self.cached_tokens)
            cached = int(cached) if cached is not None else None
            counters = speculation(meta) if reason is not None else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RequestFailed("MalformedEvent", f"{type(error).__name__} in {shown(event)}") from None
        if self.chunks and tokens < self.chunks[-1][1]:
            raise RequestFailed("MalformedEvent", f"completion_tokens fell from {self.chunks[-1][1]} to {tokens}")
        if prompt_tokens != self._input_tokens:
            raise RequestFailed("PromptLength", f"sent {self._input_tokens} tokens, the server took {prompt_tokens}")
        self.chunks.append((at, tokens))
        self.output_ids = output_ids
        text = str(data.get("text") or self.text)
        self.text = text.encode(errors="replace").decode()  # JSON may hold half characters, files may not
        self.id = meta.get("id", self.id)
        self.cached_tokens = cached
        self.finish_reason = reason or self.finish_reason
        self.speculation = counters or self.speculation


def shown(raw: bytes) -> str:
    """The first bytes as one printable line without secrets."""
    return redact(raw[:SHOWN_BYTES].decode(errors="replace")).encode("unicode_escape").decode()
