"""Each lie of the mock server, met by the load client: noticed, or not deceived. docs/mock-server.md is their table."""

import asyncio
import itertools
import json
from dataclasses import replace

import pytest

from ddtree.bench.client import measure
from ddtree.bench.metrics import request_metrics, run_metrics
from ddtree.bench.records import Conversation, PromptSet, Request, Run
from ddtree.bench.sender import connection
from ddtree.mock import LIES, Mock, Script
from ddtree.mock.lies import Asked, chat
from ddtree.plan.schema import Workload
from ddtree.servers import effective, identity

SCRIPT = Script(tokens=9, per_step=4, first_s=0.002, step_s=0.02)
STOP_ID = 2


def prompts(count: int) -> PromptSet:
    conversations = [Conversation(id=str(i), category="c", turns=[[100 + i, 7, 8]]) for i in range(count)]
    return PromptSet(
        workload="w", model="m", spec_hash="", source="", stop_token_ids=[STOP_ID], warmup=[],
        conversations=conversations, sha256="",
    )  # fmt: skip


async def run(mock: Mock, count: int = 1, concurrency: int = 1, **keys: float) -> Run:
    workload = Workload(source="s", max_new_tokens=9).model_copy(update=keys)
    return await measure(mock.url, prompts(count), workload, concurrency, 0)


async def one(lie: str | None, **keys: float) -> tuple[Request, Mock]:
    async with Mock(SCRIPT, lie).serve() as mock:
        return (await run(mock, **keys)).requests[0], mock


async def closed(mock: Mock) -> None:
    async with asyncio.timeout(10):
        while mock.open:
            await asyncio.sleep(0.005)


def counts(request: Request) -> list[int]:
    return [tokens for _, tokens in request.chunks]


async def test_a_true_stream_is_recorded_as_it_was_sent() -> None:
    request, mock = await one(None)
    (truth,) = mock.truth
    assert request.failure is None
    assert counts(request) == [1, 5, 9]
    assert [tokens for _, tokens in truth.sent] == [1, 5, 9, 9]
    assert request.output_ids == SCRIPT.ids([100, 7, 8], 9)
    assert truth.ended == "whole"
    assert request.sent_s < truth.received_s < request.chunks[0][0]


@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        ("only_done", "OnlyDone"),
        ("empty_stream", "EmptyStream"),
        ("tokens_after_eos", "TokensAfterStop"),
        ("inflated_count", "CountDiffers"),
        ("delta_ids", "CountDiffers"),
        ("count_falls", "MalformedEvent"),
        ("prompt_cut", "PromptLength"),
        ("malformed", "MalformedEvent"),
        ("error_event", "ServerError"),
        ("truncated", "Truncated"),
        ("reset", "ConnectionReset"),
        ("status_500", "HTTPStatus"),
        ("status_429", "HTTPStatus"),
    ],
)
async def test_a_broken_or_contradictory_answer_is_a_typed_failure(lie: str, kind: str) -> None:
    request, mock = await one(lie)
    assert request.failure
    assert request.failure.type == kind
    await closed(mock)


@pytest.mark.parametrize("lie", ["final_usage", "empty_deltas", "slow_chunks", "reasoning", "reasoning_content"])
async def test_tokens_are_counted_whatever_the_text_is(lie: str) -> None:
    request, _ = await one(lie)
    assert request.failure is None
    assert counts(request) == [1, 5, 9]
    assert request.output_ids == SCRIPT.ids([100, 7, 8], 9)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_the_first_token_is_one_of_reasoning(field: str) -> None:
    request, _ = await one(field)
    assert len(request.text) < len(request.output_ids)
    ttft = request_metrics(request).ttft_s
    assert ttft == request.chunks[0][0] - request.sent_s


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a_chat_stream_gives_its_reasoning_under_the_asked_name(field: str) -> None:
    beats = list(chat(SCRIPT, Asked("r", [1], 9, 0), field))
    deltas = [json.loads(beat.data[6:])["choices"][0]["delta"] for beat in beats[:-1]]
    assert [list(delta) for delta in deltas] == [[field], [field], ["content"]]
    usage = json.loads(beats[-1].data.split(b"\n")[0][6:])["usage"]
    assert usage["completion_tokens"] == sum(len(text) for delta in deltas for text in delta.values()) == 9


async def test_several_tokens_of_a_chunk_are_as_many_intervals() -> None:
    request, _ = await one(None)
    metrics = request_metrics(request)
    assert (metrics.output_tokens, len(metrics.itl_s)) == (9, 8)
    assert len(set(metrics.itl_s[:4])) == 1


async def test_one_event_of_megabytes_is_read() -> None:
    request, _ = await one("huge_chunk")
    assert request.failure is None
    assert counts(request) == [9]


async def test_a_stream_that_hangs_is_given_up_and_left_closed() -> None:
    request, mock = await one("hang", request_timeout_s=0.3)
    assert request.failure
    assert (request.failure.type, request.failure.detail) == ("Timeout", "5 tokens had arrived")
    await closed(mock)
    assert [truth.ended for truth in mock.truth] == ["left"]
    assert mock.aborted == [mock.truth[0].rid]


async def test_a_run_beyond_its_limit_leaves_no_open_request() -> None:
    async with Mock(SCRIPT, "hang").serve() as mock:
        task = asyncio.create_task(run(mock, count=20, concurrency=20))
        async with asyncio.timeout(10):
            while mock.open < 20 or not all(truth.sent for truth in mock.truth):
                await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed(mock)


@pytest.mark.parametrize(("lie", "flushed"), [("cache_hits", False), ("flush_refused", False), (None, True)])
async def test_a_cache_that_was_not_empty_marks_the_run(lie: str | None, flushed: bool) -> None:
    async with Mock(SCRIPT, lie).serve() as mock:
        assert (await run(mock)).flushed is flushed


async def test_requests_that_wait_for_a_connection_show_it_as_time_to_first_token() -> None:
    async with Mock(SCRIPT, "connection_limit", served_at_once=1).serve() as mock:
        requests = (await run(mock, count=3, concurrency=3)).requests
    served = sorted(requests, key=lambda request: request.chunks[0][0])
    for earlier, later in itertools.pairwise(served):
        assert later.sent_s < earlier.chunks[-1][0] < later.chunks[0][0]


async def test_latency_that_drifts_is_seen_between_passes() -> None:
    async with Mock(replace(SCRIPT, drift=2.0), "drift").serve() as mock:
        first, second = [run_metrics(await run(mock), 1) for _ in range(2)]
    assert first.itl
    assert second.itl
    assert second.itl.mean > first.itl.mean


async def test_another_process_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_NONCE", "ours")
    for lie, ours in ((None, "ours"), ("old_process", "of an older start")):
        async with Mock(SCRIPT, lie).serve() as mock:
            info = await asyncio.to_thread(identity.server_info, mock.url)
            assert info["nonce"] == ours
    assert not identity.is_ours(info, "ours", 1)


async def test_a_changed_flag_is_named_with_both_values() -> None:
    asked: dict[str, object] = {"draft_window": 2048}
    async with Mock(SCRIPT, "changed_flags", settings=dict(asked)).serve() as mock:
        info = await asyncio.to_thread(identity.server_info, mock.url)
    assert effective.differences(asked, info) == ["draft_window: asked for 2048, the server runs with None"]


async def test_the_account_of_the_server_can_be_fetched_and_forgotten() -> None:
    async with Mock(SCRIPT).serve() as mock, connection() as http:
        await run(mock)
        account = await (await http.get(f"{mock.url}/truth")).json()
        assert account["open"] == 0
        assert [len(request["sent"]) for request in account["requests"]] == [4]
        await http.delete(f"{mock.url}/truth")
        assert mock.truth == []


def test_the_script_drifts_by_its_share_only() -> None:
    steady, drifting = Script(tokens=5, per_step=2), Script(tokens=5, per_step=2, drift=0.5)
    assert [count for _, count in steady.steps(99)] == [1, 3, 5]
    assert steady.steps(99, 7) == steady.steps(99) == drifting.steps(99, 0)
    assert drifting.steps(99, 2)[0][0] == 2 * steady.first_s
    assert [count for _, count in Script(tokens=1).steps(99)] == [1]
    assert [count for _, count in steady.steps(4)] == [1, 3, 4]


def test_every_lie_is_described() -> None:
    assert all(LIES.values())
