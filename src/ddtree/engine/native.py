"""SGLang's own routes: generation, scoring, health, identity, metrics."""

from __future__ import annotations

from contextlib import aclosing

from aiohttp import web

from ddtree.engine.answer import Answer
from ddtree.engine.api import Sampling
from ddtree.engine.protocol import Abort, BadRequest, Generate, parse, stops
from ddtree.engine.serving import SERVING, Serving, event_stream, send

routes = web.RouteTableDef()


@routes.post("/generate")
async def generate(request: web.Request) -> web.StreamResponse:
    serving, body = request.app[SERVING], await parse(request, Generate)
    ids = body.input_ids
    if ids is None:
        ids = serving.tokenizer.encode(body.text or "", add_special_tokens=True)
    if body.return_logprob:
        return web.json_response(await _scored(serving, body, ids))
    if not body.stream:
        return web.json_response(
            _event(await serving.whole(ids, _sampling(body), stops(body.sampling_params.stop), body.rid))
        )
    response: web.StreamResponse | None = None
    async with aclosing(serving.answers(ids, _sampling(body), stops(body.sampling_params.stop), body.rid)) as answers:
        async for answer in answers:
            # Headers wait for the first token, so that a refused request still gets its own status.
            response = response or await event_stream(request)
            await send(response, _event(answer))
    assert response is not None
    await send(response, "[DONE]")
    return response


@routes.get("/health")
async def health(request: web.Request) -> web.Response:
    """The process is up and the model loaded: the port opens only then."""
    return web.json_response({"status": "ok"})


@routes.get("/health_generate")
async def health_generate(request: web.Request) -> web.Response:
    """One token is really generated."""
    serving = request.app[SERVING]
    answer = await serving.whole([0], Sampling(max_new_tokens=1, ignore_eos=True))
    return web.json_response({"status": "ok", "output_ids": answer.ids})


@routes.get("/server_info")
async def server_info(request: web.Request) -> web.Response:
    return web.json_response(request.app[SERVING].info)


@routes.post("/flush_cache")
async def flush_cache(request: web.Request) -> web.Response:
    """Nothing to flush: no prompt is ever reused. As in SGLang, it is refused while requests run."""
    if running := request.app[SERVING].worker.running:
        raise BadRequest(f"the cache cannot be flushed while {running} requests are running")
    return web.json_response({"flushed": True, "detail": "this engine keeps nothing between requests"})


@routes.post("/abort_request")
async def abort_request(request: web.Request) -> web.Response:
    body = await parse(request, Abort)
    request.app[SERVING].abort(body.rid)
    return web.json_response({"status": "ok"})


@routes.get("/metrics")
async def metrics(request: web.Request) -> web.Response:
    """Prometheus text: totals since the start, and how many requests run now."""
    serving = request.app[SERVING]
    lines = ["# TYPE ddtree_running_requests gauge", f"ddtree_running_requests {serving.worker.running}"]
    typed = set()
    for (name, finish), total in sorted(serving.totals.items()):
        if name not in typed:
            lines.append(f"# TYPE ddtree_{name}_total counter")
            typed.add(name)
        label = f'{{finish_reason="{finish}"}}' if finish else ""
        lines.append(f"ddtree_{name}_total{label} {total}")
    return web.Response(text="\n".join(lines) + "\n", content_type="text/plain", charset="utf-8")


def _sampling(body: Generate) -> Sampling:
    given = body.sampling_params
    return Sampling(
        max_new_tokens=given.max_new_tokens,
        temperature=given.temperature,
        top_p=given.top_p,
        ignore_eos=given.ignore_eos,
        stop_token_ids=frozenset(given.stop_token_ids or ()),
    )


def _event(answer: Answer) -> dict[str, object]:
    return {"text": answer.text, "output_ids": answer.ids, "meta_info": answer.meta()}


async def _scored(serving: Serving, body: Generate, ids: list[int]) -> dict[str, object]:
    """Teacher-forced log-probs: one entry per input position from `logprob_start_len` on, each a list of
    [log-prob, token id, null], best first; null for the very first token, which nothing precedes."""
    start = body.logprob_start_len if body.logprob_start_len >= 0 else len(ids) - 1
    if start >= len(ids):
        raise BadRequest(f"logprob_start_len: {start} is beyond the input; allowed: -1 to {len(ids) - 1}")
    try:
        scores = await serving.worker.call(lambda engine: engine.score(ids, max(1, start), body.top_logprobs_num))
    except ValueError as error:
        raise BadRequest(str(error)) from None
    top: list[list[tuple[float, int, None]] | None] = [[(value, token, None) for token, value in row] for row in scores]
    if start == 0:
        top.insert(0, None)
    if body.sampling_params.max_new_tokens:
        event = _event(await serving.whole(ids, _sampling(body), stops(body.sampling_params.stop), body.rid))
    else:
        finish = {"type": "length", "length": 0}
        meta = {"id": body.rid, "finish_reason": finish, "prompt_tokens": len(ids), "completion_tokens": 0}
        event = {"text": "", "output_ids": [], "meta_info": {**meta, "cached_tokens": 0}}
    event["meta_info"]["input_top_logprobs"] = top  # type: ignore[index]
    return event
