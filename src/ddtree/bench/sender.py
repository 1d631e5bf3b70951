"""One streamed request, from the POST to its record."""

from __future__ import annotations

import errno
import time
from asyncio import timeout
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp

from ddtree.bench.records import Failure, Request
from ddtree.bench.reply import SHOWN_BYTES, Reply, RequestFailed, shown
from ddtree.plan.schema import Workload

CONTROL_S = 10.0


@asynccontextmanager
async def connection() -> AsyncIterator[aiohttp.ClientSession]:
    """No limit on connections and no time limits but the plan's."""
    limits = aiohttp.ClientTimeout(total=None, sock_connect=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limits) as http:
        yield http


@dataclass(frozen=True)
class Sender:
    """Sends requests of one workload to one server."""

    http: aiohttp.ClientSession
    url: str
    workload: Workload
    stop_token_ids: frozenset[int]

    async def send(self, conversation: str, turn: int, input_ids: list[int], due_s: float | None = None) -> Request:
        """A record in every case; what goes wrong is its `failure`, and no request is left open on the server."""
        reply, failure = Reply(len(input_ids), frozenset() if self.workload.ignore_eos else self.stop_token_ids), None
        sent = time.monotonic()
        try:
            async with timeout(self.workload.request_timeout_s):
                async with self.http.post(f"{self.url}/generate", json=self._body(input_ids)) as answer:
                    if answer.status != 200:
                        said = shown(await answer.content.read(SHOWN_BYTES))
                        raise RequestFailed("HTTPStatus", f"{answer.status}: {said}")
                    async for piece in answer.content.iter_any():
                        reply.feed(time.monotonic(), piece)
            reply.close()
        except (RequestFailed, aiohttp.ClientError, OSError) as error:
            failure = _failure(error, reply)
        done = time.monotonic()
        if failure and reply.id is not None and reply.finish_reason is None:
            await self._abort(reply.id)
        return Request(
            conversation=conversation,
            turn=turn,
            input_tokens=len(input_ids),
            sent_s=sent,
            due_s=due_s,
            chunks=reply.chunks,
            done_s=done,
            finish_reason=reply.finish_reason,
            failure=failure,
            output_ids=reply.output_ids,
            text=reply.text,
            cached_tokens=reply.cached_tokens,
            speculation=reply.speculation,
        )

    def _body(self, input_ids: list[int]) -> dict[str, object]:
        sampling: dict[str, object] = {
            "max_new_tokens": self.workload.max_new_tokens,
            "temperature": self.workload.temperature,
            "top_p": self.workload.top_p,
            "ignore_eos": self.workload.ignore_eos,
        }
        if self.stop_token_ids and not self.workload.ignore_eos:
            sampling["stop_token_ids"] = sorted(self.stop_token_ids)
        return {"input_ids": input_ids, "sampling_params": sampling, "stream": True}

    async def _abort(self, rid: str) -> None:
        """The closed connection should have ended the request; this makes sure that it does not load the next one."""
        with suppress(aiohttp.ClientError, OSError):
            limit = aiohttp.ClientTimeout(total=CONTROL_S)
            async with self.http.post(f"{self.url}/abort_request", json={"rid": rid}, timeout=limit):
                pass


def _failure(error: Exception, reply: Reply) -> Failure:
    """The class of the failure, never the bare text of an exception: a timeout's is empty."""
    arrived = f"{reply.chunks[-1][1] if reply.chunks else 0} tokens had arrived"
    match error:
        case RequestFailed():
            return Failure(type=error.type, detail=error.detail)
        case TimeoutError():
            return Failure(type="Timeout", detail=arrived)
        case _ if isinstance(error, aiohttp.ServerDisconnectedError) or _was_reset(error):
            return Failure(type="ConnectionReset", detail=arrived)
        case aiohttp.ClientPayloadError():
            return Failure(type="Truncated", detail=f"the body ended early; {arrived}")
        case _:
            return Failure(type=type(error).__name__, detail=str(error))


def _was_reset(error: Exception) -> bool:
    """Within a body aiohttp keeps the socket's error in its own error's text only."""
    return (isinstance(error, OSError) and error.errno == errno.ECONNRESET) or "ConnectionResetError" in str(error)
