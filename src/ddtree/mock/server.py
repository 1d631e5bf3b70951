"""The mock server: SGLang's routes and OpenAI's, scripted streams, and its own account of what it sent when."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

from ddtree.mock.lies import STATUS, Asked, Beat, chat, completions, native
from ddtree.mock.script import Script

SERVED_AT_ONCE = 100  # by the lie connection_limit
MODEL = "mock"


@dataclass
class Truth:
    """One request as the server knows it. Times are seconds of this host's monotonic clock."""

    rid: str
    received_s: float
    input_tokens: int
    sent: list[tuple[float, int]] = field(default_factory=list)  # (after the write, tokens generated so far)
    ended: str = ""  # whole, cut, or left (the client went away)


class Mock:
    """`lie` is one of LIES, or None for the truth. `settings` are what /server_info reports."""

    def __init__(
        self,
        script: Script | None = None,
        lie: str | None = None,
        settings: dict[str, object] | None = None,
        served_at_once: int = SERVED_AT_ONCE,
    ) -> None:
        self.script, self.lie, self.settings = script or Script(), lie, settings or {}
        self.truth: list[Truth] = []
        self.open, self.aborted, self.url = 0, list[str](), ""
        self._served = asyncio.Semaphore(served_at_once) if lie == "connection_limit" else None
        self._numbers = itertools.count()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        ids = list(body.get("input_ids") or map(ord, body.get("text", "")))
        limit = int(body.get("sampling_params", {}).get("max_new_tokens", 128))
        if not body.get("stream"):
            return web.json_response(self._whole(ids, limit))
        return await self._stream(request, ids, limit, native)

    def _whole(self, ids: list[int], limit: int) -> dict[str, object]:
        out = self.script.ids(ids, min(limit, self.script.tokens))
        meta = {"id": "whole", "finish_reason": {"type": "length"}, "prompt_tokens": len(ids), "cached_tokens": 0}
        return {"text": "".join(map(chr, out)), "output_ids": out, "meta_info": meta | {"completion_tokens": len(out)}}

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        prompt = body.get("prompt", "".join(str(message.get("content", "")) for message in body.get("messages", [])))
        ids = list(map(ord, prompt)) if isinstance(prompt, str) else list(prompt)
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 128)
        if body.get("stream"):
            return await self._stream(request, ids, limit, chat if "messages" in body else completions)
        text = "".join(map(chr, self.script.ids(ids, min(limit, self.script.tokens))))
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(text), "total_tokens": len(ids) + len(text)}
        choice = {
            "index": 0,
            "text": text,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "length",
        }
        return web.json_response({"id": "whole", "model": MODEL, "choices": [choice], "usage": usage})

    async def _stream(
        self,
        request: web.Request,
        ids: list[int],
        limit: int,
        tell: Callable[[Script, Asked, str | None], Iterable[Beat]],
    ) -> web.StreamResponse:
        if self.lie in STATUS:
            return web.Response(status=STATUS[self.lie], text="no room for more requests")
        number = next(self._numbers)
        truth = Truth(f"r{number}", time.monotonic(), len(ids), ended="left")
        self.truth.append(truth)
        self.open += 1
        try:
            if self._served:
                async with self._served:
                    return await self._play(
                        request, tell(self.script, Asked(truth.rid, ids, limit, number), None), truth
                    )
            return await self._play(request, tell(self.script, Asked(truth.rid, ids, limit, number), self.lie), truth)
        finally:
            self.open -= 1

    async def _play(self, request: web.Request, beats: Iterable[Beat], truth: Truth) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await out.prepare(request)
        begin = time.monotonic()
        for beat in beats:
            if (wait := begin + beat.at_s - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            await out.write(beat.data)
            truth.sent.append((time.monotonic(), beat.tokens))
        if self.lie == "hang":
            await asyncio.Event().wait()
        if self.lie == "reset" and request.transport:
            await asyncio.sleep(self.script.step_s)  # what was written must arrive before the reset overtakes it
            _reset(request.transport)
        truth.ended = "cut" if self.lie in ("reset", "truncated", "malformed", "error_event") else "whole"
        return out

    async def _info(self, _: web.Request) -> web.Response:
        nonce = "of an older start" if self.lie == "old_process" else os.environ.get("DDTREE_NONCE", "")
        said = dict(self.settings)
        if self.lie == "changed_flags" and said:
            said[next(iter(said))] = None
        return web.json_response({"engine": "mock", "nonce": nonce, "pid": os.getpid(), **said})

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _ok(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _flush(self, _: web.Request) -> web.Response:
        return web.Response(status=400 if self.lie == "flush_refused" else 200)

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborted.append(str((await request.json())["rid"]))
        return web.Response()

    async def _account(self, _: web.Request) -> web.Response:
        return web.json_response({"open": self.open, "requests": [asdict(truth) for truth in self.truth]})

    async def _forget(self, _: web.Request) -> web.Response:
        self.truth.clear()
        return web.Response()

    @asynccontextmanager
    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Mock]:
        """Serves until the context ends; `port` 0 takes a free one. OSError when the port is taken."""
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/generate", self._generate)
        for path in ("/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, self._openai)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_post("/flush_cache", self._flush)
        for path in ("/health", "/health_generate"):
            app.router.add_get(path, self._ok)
        for path in ("/server_info", "/get_server_info"):
            app.router.add_get(path, self._info)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/truth", self._account)
        app.router.add_delete("/truth", self._forget)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, backlog=4096).start()
            self.url = f"http://{host}:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()


def _reset(transport: asyncio.Transport) -> None:
    """Closes with RST instead of FIN."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
