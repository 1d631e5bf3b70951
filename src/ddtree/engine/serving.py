"""What every route shares: the worker, the tokenizer, the running answer of a request, and totals for /metrics."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from aiohttp import web

from ddtree.engine.answer import Answer
from ddtree.engine.api import GenRequest, Progress, Sampling
from ddtree.engine.detokenizer import Vocabulary
from ddtree.engine.protocol import BadRequest
from ddtree.engine.worker import Worker
from ddtree.models import Tokenizer


@dataclass
class Serving:
    worker: Worker
    tokenizer: Tokenizer
    info: dict[str, object]  # what /server_info says
    totals: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._vocabulary = Vocabulary(self.tokenizer)
        self._running: dict[str, str] = {}  # the client's name of a request -> the engine's, which is used only once

    @property
    def context_length(self) -> int:
        return int(str(self.info["context_length"]))

    async def answers(
        self, input_ids: list[int], sampling: Sampling, stop: Sequence[str] = (), rid: str | None = None
    ) -> AsyncGenerator[Answer]:
        """The answer after each engine step, the same object every time; the last one has its `finish`.

        Leaving early, by a disconnected client too, ends the request in the engine. Raises BadRequest before the
        first answer.
        """
        unique = uuid.uuid4().hex
        rid = rid or unique
        if rid in self._running:
            raise BadRequest(f"rid: {rid} is already running")
        self._running[rid] = unique
        answer = Answer(rid, len(input_ids), stop, self._vocabulary.detokenizer())
        try:
            stream = await self._start(GenRequest(unique, input_ids, sampling), answer)
            while answer.finish is None:
                answer.take(await stream.get())
                yield answer
        finally:
            del self._running[rid]
            self.worker.close(unique)
            self._record(answer)

    async def whole(
        self, input_ids: list[int], sampling: Sampling, stop: Sequence[str] = (), rid: str | None = None
    ) -> Answer:
        """The finished answer."""
        async with aclosing(self.answers(input_ids, sampling, stop, rid)) as answers:
            async for answer in answers:
                last = answer
        return last

    def abort(self, rid: str | None) -> None:
        """End the request that the client calls `rid`, if it runs, or all requests."""
        for name in [rid] if rid is not None else list(self._running):
            if name in self._running:
                self.worker.abort(self._running[name])

    async def _start(self, request: GenRequest, answer: Answer) -> asyncio.Queue[Progress]:
        try:
            return await self.worker.add(request)
        except ValueError as error:
            answer.finish = {"type": "refused"}
            raise BadRequest(str(error)) from None

    def _record(self, answer: Answer) -> None:
        ended = str(answer.finish["type"]) if answer.finish else "disconnect"
        self.totals["requests", ended] += 1
        if ended == "refused":
            return
        self.totals["prompt_tokens", ""] += answer.prompt_tokens
        self.totals["generated_tokens", ""] += len(answer.ids)
        if counters := answer.counters:
            self.totals["verify_steps", ""] += counters.verify_steps
            self.totals["verified_nodes", ""] += counters.verified_nodes


SERVING = web.AppKey("serving", Serving)


async def event_stream(request: web.Request) -> web.StreamResponse:
    """Begin a response of server-sent events."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    return response


async def send(response: web.StreamResponse, data: object) -> None:
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    await response.write(f"data: {text}\n\n".encode())
