"""An engine without a model on a real socket: it answers as told and remembers what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from ddtree.bench.records import Conversation, PromptSet

STOP_ID = 0  # no other token of an answer


def prompt_set(*conversations: Conversation, warmup: tuple[Conversation, ...] = ()) -> PromptSet:
    return PromptSet(
        workload="w", model="m", spec_hash="", source="", stop_token_ids=[STOP_ID], warmup=list(warmup),
        conversations=list(conversations), sha256="",
    )  # fmt: skip


def conversation(name: str, *turns: list[int]) -> Conversation:
    return Conversation(id=name, category="c", turns=list(turns))


def event(ids: list[int], asked: dict[str, Any], finish: str | None = None, **meta: object) -> bytes:
    info = {
        "id": "r", "finish_reason": {"type": finish} if finish else None, "prompt_tokens": len(asked["input_ids"]),
        "completion_tokens": len(ids), "cached_tokens": 0,
    }  # fmt: skip
    data = {"text": "".join(map(chr, ids)), "output_ids": ids, "meta_info": info | meta}
    return f"data: {json.dumps(data)}\n\n".encode()


class FakeEngine:
    """`script(body, response)` writes one reply; the default answers [first input id + 1, ..., stop] in two chunks."""

    def __init__(self) -> None:
        self.script: Callable[[dict[str, Any], web.StreamResponse], Any] = self.answer
        self.asked: list[dict[str, Any]] = []
        self.aborted: list[str] = []
        self.open, self.most_open, self.flushes, self.flush_status = 0, 0, 0, 200
        self.status = 200
        self.cached_tokens = 0
        self.url = ""

    @staticmethod
    def reply_to(input_ids: list[int]) -> list[int]:
        return [input_ids[0] + 1, len(input_ids), STOP_ID]

    async def answer(self, body: dict[str, Any], out: web.StreamResponse) -> None:
        ids = self.reply_to(body["input_ids"])
        await out.write(event(ids[:1], body))
        await asyncio.sleep(0.01)
        await out.write(event(ids, body, "stop", cached_tokens=self.cached_tokens) + b"data: [DONE]\n\n")

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        if self.status != 200:
            return web.Response(status=self.status, text="queue is full")
        body = await request.json()
        self.asked.append(body)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            if not body.get("stream"):
                return web.json_response(self.script(body, web.StreamResponse()))
            out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await out.prepare(request)
            await self.script(body, out)
            return out
        finally:
            self.open -= 1

    async def _flush(self, _: web.Request) -> web.Response:
        self.flushes += 1
        return web.Response(status=self.flush_status)

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json())["rid"])
        return web.Response()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["FakeEngine"]:
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/flush_cache", self._flush)
        app.router.add_post("/abort_request", self._abort)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()
