import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from fake_engine import STOP_ID, FakeEngine, conversation, event, prompt_set

from ddtree.bench import client, health
from ddtree.bench.client import CellTimeout, flush, measure, warm_up
from ddtree.bench.records import Failure, Request
from ddtree.plan.schema import Workload

WORKLOAD = Workload(source="s", max_new_tokens=16)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine().serve() as fake:
        yield fake


async def one(engine: FakeEngine, **limits: float) -> Request:
    workload = WORKLOAD.model_copy(update=limits)
    run = await measure(engine.url, prompt_set(conversation("only", [10, 20, 30])), workload, 1, 0)
    return run.requests[0]


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_request_is_recorded_with_its_chunks(engine: FakeEngine) -> None:
    request = await one(engine)
    assert request.failure is None
    assert [tokens for _, tokens in request.chunks] == [1, 3]
    assert request.sent_s < request.chunks[0][0] < request.chunks[1][0] <= request.done_s
    assert (request.finish_reason, request.output_ids, request.input_tokens) == ("stop", [11, 3, STOP_ID], 3)
    assert engine.asked == [
        {
            "input_ids": [10, 20, 30],
            "sampling_params": {
                "max_new_tokens": 16, "temperature": 0.0, "top_p": 1.0, "ignore_eos": False,
                "stop_token_ids": [STOP_ID],
            },
            "stream": True,
        }
    ]  # fmt: skip


async def test_replies_are_fed_back_without_their_stop_token(engine: FakeEngine) -> None:
    prompts = prompt_set(conversation("a", [10, 11], [STOP_ID, 50], [60]))
    run = await measure(engine.url, prompts, WORKLOAD, 1, 0)
    second = [10, 11, 11, 2, STOP_ID, 50]
    assert [body["input_ids"] for body in engine.asked] == [[10, 11], second, [*second, 11, 6, 60]]
    assert [request.turn for request in run.requests] == [0, 1, 2]


async def test_concurrency_is_kept_and_conversations_begin_in_order(engine: FakeEngine) -> None:
    names = [f"c{i}" for i in range(9)]
    prompts = prompt_set(*(conversation(name, [100 + i], [7]) for i, name in enumerate(names)))
    run = await measure(engine.url, prompts, WORKLOAD, 3, 5)
    first_turns = [body["input_ids"][0] for body in engine.asked if len(body["input_ids"]) == 1]
    assert first_turns == [100 + i for i in range(9)]
    assert engine.most_open == 3
    assert [(r.conversation, r.turn) for r in run.requests] == [(name, turn) for name in names for turn in (0, 1)]
    assert run.repeat == 5
    assert run.start_s <= min(r.sent_s for r in run.requests)
    assert run.end_s >= max(r.done_s for r in run.requests)


async def test_many_requests_are_open_at_once(engine: FakeEngine) -> None:
    everyone = asyncio.Event()

    async def together(body: dict[str, Any], out: web.StreamResponse) -> None:
        if engine.open == 150:
            everyone.set()
        await everyone.wait()
        await engine.answer(body, out)

    engine.script = together
    prompts = prompt_set(*(conversation(str(i), [i]) for i in range(150)))
    run = await measure(engine.url, prompts, WORKLOAD, 150, 0)
    assert not [r for r in run.requests if r.failure]


async def test_a_chunk_of_megabytes_is_no_failure(engine: FakeEngine) -> None:
    async def long(body: dict[str, Any], out: web.StreamResponse) -> None:
        await out.write(event([65] * 600_000, body, "length"))

    engine.script = long
    request = await one(engine)
    assert request.failure is None
    assert len(request.output_ids) == 600_000


async def test_http_errors_carry_status_and_text(engine: FakeEngine) -> None:
    engine.status = 429
    request = await one(engine)
    assert request.failure == Failure(type="HTTPStatus", detail="429: queue is full")


async def test_a_hanging_stream_times_out_with_what_arrived_and_is_aborted(engine: FakeEngine) -> None:
    async def hang(body: dict[str, Any], out: web.StreamResponse) -> None:
        await out.write(event([65, 66], body))
        await asyncio.sleep(600)

    engine.script = hang
    request = await one(engine, request_timeout_s=1)
    assert request.failure == Failure(type="Timeout", detail="2 tokens had arrived")
    assert [tokens for _, tokens in request.chunks] == [2]
    assert engine.aborted == ["r"]
    await until(lambda: engine.open == 0)


async def test_a_server_that_never_answers_times_out_and_is_left(engine: FakeEngine) -> None:
    async def silent(body: dict[str, Any], out: web.StreamResponse) -> None:
        await asyncio.sleep(600)

    engine.script = silent
    assert (await one(engine, request_timeout_s=0.2)).failure == Failure(type="Timeout", detail="0 tokens had arrived")
    await until(lambda: engine.open == 0)


def reset_on_close(transport: Any) -> None:
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


@pytest.mark.parametrize(("reset", "kind"), [(True, "ConnectionReset"), (False, "Truncated")])
async def test_a_connection_lost_within_the_body_is_a_typed_failure(engine: FakeEngine, reset: bool, kind: str) -> None:
    async def cut(body: dict[str, Any], out: web.StreamResponse) -> None:
        await out.write(event([65], body))
        await until(lambda: not out._req.transport.get_write_buffer_size())  # type: ignore[union-attr]
        await asyncio.sleep(0.1)
        transport = out._req.transport  # type: ignore[union-attr]
        reset_on_close(transport) if reset else transport.close()

    engine.script = cut
    failure = (await one(engine)).failure
    assert failure is not None
    assert failure.type == kind


async def test_a_connection_lost_before_any_answer_is_a_reset() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        reset_on_close(writer.transport)

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        run = await measure(url, prompt_set(conversation("a", [1])), WORKLOAD, 1, 0)
    assert run.requests[0].failure == Failure(type="ConnectionReset", detail="0 tokens had arrived")


async def test_no_server_at_all_is_named_by_its_class() -> None:
    run = await measure("http://127.0.0.1:1", prompt_set(conversation("a", [1], [2])), WORKLOAD, 1, 0)
    assert [r.failure.type for r in run.requests if r.failure] == ["ClientConnectorError", "EarlierTurnFailed"]
    assert run.requests[0].failure is not None
    assert run.requests[0].failure.detail
    assert not run.flushed


async def test_later_turns_of_a_failed_conversation_are_not_sent(engine: FakeEngine) -> None:
    async def fail_second(body: dict[str, Any], out: web.StreamResponse) -> None:
        if len(engine.asked) != 2:
            await engine.answer(body, out)

    engine.script = fail_second
    prompts = prompt_set(conversation("a", [1], [3], [4]), conversation("b", [9]))
    run = await measure(engine.url, prompts, WORKLOAD, 1, 0)
    assert [r.failure.type if r.failure else None for r in run.requests] == [
        None,
        "EmptyStream",
        "EarlierTurnFailed",
        None,
    ]
    assert len(engine.asked) == 3


async def test_a_cell_that_takes_too_long_ends_and_leaves_no_open_request(engine: FakeEngine) -> None:
    async def hang_from_the_third(body: dict[str, Any], out: web.StreamResponse) -> None:
        if len(engine.asked) > 2:
            await asyncio.sleep(600)
        await engine.answer(body, out)

    engine.script = hang_from_the_third
    prompts = prompt_set(*(conversation(str(i), [i]) for i in range(6)))
    with pytest.raises(CellTimeout, match=r"2 of 6 requests ended within 1\.5 s"):
        await measure(engine.url, prompts, WORKLOAD, 2, 0, limit_s=1.5)
    await until(lambda: engine.open == 0)


async def test_the_cache_is_flushed_before_a_run_and_the_flush_is_checked(engine: FakeEngine) -> None:
    prompts = prompt_set(conversation("a", [1, 2, 3, 4, 5]), conversation("b", [1, 2, 9]), conversation("c", [7]))

    async def flushed(concurrency: int = 1) -> bool:
        return (await measure(engine.url, prompts, WORKLOAD, concurrency, 0)).flushed

    assert await flushed()
    engine.cached_tokens = 2  # "a" and "b" share two tokens, "c" shares none
    assert not await flushed()
    engine.cached_tokens, engine.flush_status = 0, 500
    assert not await flushed()
    assert not await flush(engine.url)
    assert engine.flushes == 4


def test_tokens_shared_within_the_run_are_no_stale_cache() -> None:
    conversations = [conversation("a", [1, 2, 3]), conversation("b", [5]), conversation("c", [1, 2, 9, 9])]

    def answered(name: str, cached: int) -> Request:
        return Request(
            conversation=name, turn=0, input_tokens=3, sent_s=0, chunks=[(1.0, 1)], done_s=1, finish_reason="stop",
            cached_tokens=cached,
        )  # fmt: skip

    assert not client._reused([answered("a", 0), answered("b", 0), answered("c", 2)], conversations)
    assert client._reused([answered("a", 0), answered("b", 0), answered("c", 3)], conversations)
    assert client._reused([answered("a", 0), answered("b", 1), answered("c", 0)], conversations)


async def test_warm_up_sends_only_warm_up_prompts(engine: FakeEngine) -> None:
    prompts = prompt_set(conversation("a", [1]), warmup=(conversation("w", [8]), conversation("x", [9])))
    requests = await warm_up(engine.url, prompts, WORKLOAD, 2)
    assert sorted(r.conversation for r in requests) == ["w", "x"]
    assert [body["input_ids"] for body in engine.asked] == [[8], [9]]


def test_lag_beyond_a_tenth_of_the_usual_gap_is_distortion() -> None:
    request = Request(
        conversation="a", turn=0, input_tokens=1, sent_s=0, chunks=[(i * 0.5, i) for i in range(1, 9)], done_s=4,
        finish_reason="stop",
    )  # fmt: skip
    assert not health.verdict([0.0] * 999 + [3.0], []).distorted
    assert health.verdict([0.02] * 100, []).distorted
    assert not health.verdict([0.02] * 100, [request]).distorted
    assert health.verdict([0.06] * 100, [request]).distorted


async def test_a_blocked_event_loop_is_seen() -> None:
    async with health.LoopWatch() as watch:
        await asyncio.sleep(0.02)
        time.sleep(0.2)
        await asyncio.sleep(0.02)
    assert health.verdict(watch.lags_s, []).loop_lag_max_s > 0.1
