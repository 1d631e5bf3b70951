from typing import Any

import pytest
from aiohttp import web
from fake_engine import STOP_ID, FakeEngine, conversation, prompt_set

from ddtree.bench.client import measure
from ddtree.bench.scoring import ScoreFailed, score
from ddtree.plan.schema import Workload

PROMPTS = prompt_set(conversation("a", [10, 11], [50]), conversation("b", [20]))
WORKLOAD = Workload(source="s", max_new_tokens=16)


def with_scores(engine: FakeEngine, missing: int = 0) -> None:
    """At position p the best token is the one that stands there, with log-prob -p; the second is its successor."""

    def script(body: dict[str, Any], out: web.StreamResponse) -> Any:
        if body.get("stream"):
            return engine.answer(body, out)
        ids, start = body["input_ids"], body["logprob_start_len"]
        entries = [
            [[-float(p), ids[p], None], [-p - 0.5, ids[p] + 1, None]] for p in range(start + 1, len(ids) - missing)
        ]
        return {"meta_info": {"input_top_logprobs": [None, *entries]}}

    engine.script = script


async def test_every_output_position_is_scored_in_the_context_that_was_sent() -> None:
    async with FakeEngine().serve() as engine:
        with_scores(engine)
        run = await measure(engine.url, PROMPTS, WORKLOAD, 1, 0)
        sent = [body["input_ids"] for body in engine.asked]
        audits = await score(engine.url, run, PROMPTS)
    assert [(audit.conversation, audit.turn) for audit in audits] == [("a", 0), ("a", 1), ("b", 0)]
    asked = engine.asked[len(sent) :]
    for body, context, request in zip(asked, sent, run.requests, strict=True):
        assert body["input_ids"] == context + request.output_ids
        assert (body["return_logprob"], body["top_logprobs_num"], body["stream"]) == (True, 2, False)
    assert audits[0].top == [(11, -2.0, 12, -2.5), (2, -3.0, 3, -3.5), (STOP_ID, -4.0, STOP_ID + 1, -4.5)]
    for audit, request in zip(audits, run.requests, strict=True):
        assert [best for best, *_ in audit.top] == request.output_ids


async def test_failed_requests_are_not_scored() -> None:
    async with FakeEngine().serve() as engine:
        with_scores(engine)
        run = await measure(engine.url, PROMPTS, WORKLOAD, 1, 0)
        broken = run.requests[1].model_copy(update={"failure": {"type": "Timeout"}})
        audits = await score(engine.url, run.model_copy(update={"requests": [run.requests[0], broken]}), PROMPTS)
    assert [(audit.conversation, audit.turn) for audit in audits] == [("a", 0)]


async def test_a_server_that_scores_too_few_positions_is_refused() -> None:
    async with FakeEngine().serve() as engine:
        with_scores(engine, missing=1)
        run = await measure(engine.url, PROMPTS, WORKLOAD, 1, 0)
        with pytest.raises(ScoreFailed, match="a: 3 scores for 3 tokens"):
            await score(engine.url, run, PROMPTS)


async def test_a_server_that_refuses_to_score_is_quoted() -> None:
    async with FakeEngine().serve() as engine:
        run = await measure(engine.url, PROMPTS, WORKLOAD, 1, 0)
        engine.status = 503
        with pytest.raises(ScoreFailed, match="a: HTTP 503: queue is full"):
            await score(engine.url, run, PROMPTS)
