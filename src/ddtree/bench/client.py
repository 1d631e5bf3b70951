"""The load client: a closed loop or given arrivals, raw records only (metrics.py derives)."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterable, Sequence

import aiohttp

from ddtree.bench import health, neighbours
from ddtree.bench.arrivals import offsets
from ddtree.bench.dialogue import extend
from ddtree.bench.records import Conversation, Failure, PromptSet, Request, Run
from ddtree.bench.sender import CONTROL_S, Sender, connection
from ddtree.plan.schema import Workload


class CellTimeout(Exception):
    """A run took longer than its cell may; says how far it came."""


async def measure(
    url: str,
    prompts: PromptSet,
    workload: Workload,
    concurrency: int,
    repeat: int,
    limit_s: float | None = None,
    server_pid: int | None = None,
) -> Run:
    """One pass over the conversations, in their order, `concurrency` of them at any time; when the workload gives
    arrivals, each when it is due and at most `concurrency` at any time.

    The prefix cache is flushed first. `limit_s` (default: the workload's cell_timeout_s) bounds the pass; beyond it the
    open requests are closed, which aborts them, and CellTimeout is raised. Failed requests are records, not exceptions.
    `server_pid` is the server's process when it runs on this host: what others used of its cores is recorded.
    """
    limit = workload.cell_timeout_s if limit_s is None else limit_s
    requests: list[Request] = []
    async with connection() as http:
        emptied = await _flush(http, url)
        sender = Sender(http, url, workload, frozenset(prompts.stop_token_ids))
        async with health.LoopWatch() as watch:
            cores, start = neighbours.CoreWatch([os.getpid(), server_pid] if server_pid else []), time.monotonic()
            try:
                async with asyncio.timeout(limit):
                    if workload.arrivals:
                        due = offsets(workload.arrivals, len(prompts.conversations))
                        await _open_loop(sender, prompts.conversations, due, concurrency, requests)
                    else:
                        await _closed_loop(sender, prompts.conversations, concurrency, requests)
            except TimeoutError:
                total = sum(len(conversation.turns) for conversation in prompts.conversations)
                raise CellTimeout(f"{len(requests)} of {total} requests ended within {limit:g} s") from None
            end, foreign = time.monotonic(), cores.foreign_cores() if server_pid else None
    order = {conversation.id: i for i, conversation in enumerate(prompts.conversations)}
    requests.sort(key=lambda r: (order[r.conversation], r.turn))
    return Run(
        repeat=repeat,
        start_s=start,
        end_s=end,
        flushed=emptied and not _reused(requests, prompts.conversations),
        requests=requests,
        client=health.verdict(watch.lags_s, requests, foreign),
    )


async def warm_up(url: str, prompts: PromptSet, workload: Workload, concurrency: int) -> list[Request]:
    """Sends the warm-up conversations, which no measurement uses; a failure here foretells the run's."""
    requests: list[Request] = []
    async with connection() as http:
        sender = Sender(http, url, workload, frozenset(prompts.stop_token_ids))
        await _closed_loop(sender, prompts.warmup, concurrency, requests)
    return requests


async def flush(url: str) -> bool:
    """Empties the server's prefix cache; False when it did not confirm that."""
    async with connection() as http:
        return await _flush(http, url)


async def _flush(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.post(f"{url}/flush_cache", timeout=aiohttp.ClientTimeout(total=CONTROL_S)) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError):
        return False


async def _closed_loop(
    sender: Sender, conversations: Iterable[Conversation], concurrency: int, requests: list[Request]
) -> None:
    """Each of `concurrency` workers takes the next conversation as soon as its last one ended."""
    waiting = iter(conversations)

    async def worker() -> None:
        for conversation in waiting:
            await _converse(sender, conversation, requests)

    async with asyncio.TaskGroup() as workers:
        for _ in range(concurrency):
            workers.create_task(worker())


async def _open_loop(
    sender: Sender,
    conversations: Sequence[Conversation],
    due: Sequence[float],
    concurrency: int,
    requests: list[Request],
) -> None:
    """Each conversation begins when it is due, `due` seconds from now. One that finds `concurrency` others in flight
    waits for a slot, first come first served; its record has the time that it was due."""
    begin, slots = time.monotonic(), asyncio.Semaphore(concurrency)

    async def one(conversation: Conversation, due_s: float) -> None:
        async with slots:
            await _converse(sender, conversation, requests, due_s)

    async with asyncio.TaskGroup() as running:
        for conversation, offset in zip(conversations, due, strict=True):
            await asyncio.sleep(max(0.0, begin + offset - time.monotonic()))
            running.create_task(one(conversation, begin + offset))


async def _converse(
    sender: Sender, conversation: Conversation, requests: list[Request], due_s: float | None = None
) -> None:
    context: list[int] = []
    reply: list[int] = []
    failed: int | None = None
    for number, turn in enumerate(conversation.turns):
        if failed is None:
            context = extend(context, reply, turn, sender.stop_token_ids)
            request = await sender.send(conversation.id, number, context, None if number else due_s)
            reply = request.output_ids
            failed = number if request.failure else None
        else:
            request = _not_sent(conversation.id, number, failed)
        requests.append(request)


def _not_sent(conversation: str, turn: int, failed: int) -> Request:
    now = time.monotonic()
    return Request(
        conversation=conversation,
        turn=turn,
        input_tokens=0,
        sent_s=now,
        chunks=[],
        done_s=now,
        finish_reason=None,
        failure=Failure(type="EarlierTurnFailed", detail=f"turn {failed} failed"),
    )


def _reused(requests: list[Request], conversations: list[Conversation]) -> bool:
    """Whether a first turn was served more cached tokens than it shares with another prompt of the same run."""
    cached = {r.conversation: r.cached_tokens or 0 for r in requests if r.turn == 0}
    if not any(cached.values()):
        return False
    ordered = sorted(conversations, key=lambda c: c.turns[0])  # the longest common prefix is with a neighbour
    shared = dict.fromkeys(cached, 0)
    for one, other in itertools.pairwise(ordered):
        length = _common_prefix(one.turns[0], other.turns[0])
        for conversation in (one, other):
            shared[conversation.id] = max(shared[conversation.id], length)
    return any(tokens > shared[name] for name, tokens in cached.items())


def _common_prefix(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
