"""The OpenAI-compatible routes: models, completions, chat completions; streamed or not."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Literal

from aiohttp import web

from ddtree.engine.answer import Answer
from ddtree.engine.api import Sampling
from ddtree.engine.protocol import BadRequest, ChatCompletion, Completion, OpenAI, parse, stops
from ddtree.engine.serving import SERVING, Serving, event_stream, send
from ddtree.models import Message, ModelError

routes = web.RouteTableDef()
COMPLETION_TOKENS = 16  # OpenAI's default; a chat's is what the context still holds
Kind = Literal["text_completion", "chat.completion"]


@routes.get("/v1/models")
async def models(request: web.Request) -> web.Response:
    info = request.app[SERVING].info
    model = {
        "id": info["served_model_name"],
        "object": "model",
        "created": int(float(str(info["started_unix"]))),
        "owned_by": "ddtree",
        "max_model_len": info["context_length"],
    }
    return web.json_response({"object": "list", "data": [model]})


@routes.post("/v1/completions")
async def completions(request: web.Request) -> web.StreamResponse:
    serving, body = request.app[SERVING], await parse(request, Completion)
    ids = body.prompt if isinstance(body.prompt, list) else serving.tokenizer.encode(body.prompt, True)
    return await _respond(request, serving, body, ids, body.max_tokens or COMPLETION_TOKENS, "text_completion")


@routes.post("/v1/chat/completions")
async def chat_completions(request: web.Request) -> web.StreamResponse:
    serving, body = request.app[SERVING], await parse(request, ChatCompletion)
    messages: list[Message] = [{"role": message.role, "content": message.text} for message in body.messages]
    try:
        ids = serving.tokenizer.encode(serving.tokenizer.chat(messages))
    except ModelError as error:
        raise BadRequest(str(error)) from None
    limit = body.max_completion_tokens or body.max_tokens or max(1, serving.context_length - len(ids))
    return await _respond(request, serving, body, ids, limit, "chat.completion")


async def _respond(
    request: web.Request, serving: Serving, body: OpenAI, ids: list[int], limit: int, kind: Kind
) -> web.StreamResponse:
    sampling = Sampling(limit, body.temperature, body.top_p, body.ignore_eos, frozenset(body.stop_token_ids or ()))
    stop = stops(body.stop)
    if body.stream:
        return await _stream(request, serving, body, ids, sampling, stop, kind)
    answer = await serving.whole(ids, sampling, stop)
    content: dict[str, object] = {"text": answer.text}
    if kind == "chat.completion":
        content = {"message": {"role": "assistant", "content": answer.text}}
    return web.json_response({**_envelope(serving, answer, kind, content), "usage": _usage(answer)})


async def _stream(
    request: web.Request,
    serving: Serving,
    body: OpenAI,
    ids: list[int],
    sampling: Sampling,
    stop: tuple[str, ...],
    kind: Kind,
) -> web.StreamResponse:
    """Differences as they come. Usage is in the last chunk, or in one of its own where the client asks for that."""
    own_chunk = body.stream_options is not None and body.stream_options.include_usage
    chat, sent = kind == "chat.completion", 0
    response: web.StreamResponse | None = None
    async with aclosing(serving.answers(ids, sampling, stop)) as answers:
        async for answer in answers:
            role = {"role": "assistant"} if chat and response is None else {}
            response = response or await event_stream(request)
            new, sent = answer.text[sent:], len(answer.text)
            if not (new or answer.finish or role):
                continue
            content: dict[str, object] = {"delta": {**role, "content": new}} if chat else {"text": new}
            chunk = _envelope(serving, answer, kind, content, chunk=True)
            if answer.finish and not own_chunk:
                chunk["usage"] = _usage(answer)
            await send(response, chunk)
    assert response is not None
    if own_chunk:
        chunk = _envelope(serving, answer, kind, {}, chunk=True)
        await send(response, {**chunk, "choices": [], "usage": _usage(answer)})
    await send(response, "[DONE]")
    return response


def _envelope(
    serving: Serving, answer: Answer, kind: Kind, content: dict[str, object], chunk: bool = False
) -> dict[str, object]:
    choice = {"index": 0, **content, "logprobs": None, "finish_reason": answer.finish and answer.finish["type"]}
    return {
        "id": answer.rid,
        "object": "chat.completion.chunk" if chunk and kind == "chat.completion" else kind,
        "created": int(time.time()),
        "model": serving.info["served_model_name"],
        "choices": [choice],
    }


def _usage(answer: Answer) -> dict[str, int]:
    prompt, completion = answer.prompt_tokens, len(answer.ids)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
