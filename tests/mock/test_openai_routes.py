"""OpenAI's two routes have two shapes: some clients take an answer of the other one's for no answer."""

import json
from typing import Any

import aiohttp
import pytest

from ddtree.mock import Mock, Script

ASKED: dict[str, dict[str, object]] = {
    "/v1/completions": {"prompt": "abc"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "abc"}]},
}


async def streamed(path: str) -> list[dict[str, Any]]:
    async with Mock(Script(tokens=6, per_step=2, first_s=0, step_s=0)).serve("127.0.0.1", 0) as mock:
        async with aiohttp.ClientSession() as http:
            body = ASKED[path] | {"stream": True, "max_tokens": 6}
            async with http.post(mock.url + path, json=body) as answer:
                lines = (await answer.text()).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


@pytest.mark.parametrize(
    ("path", "kind", "shown"),
    [("/v1/completions", "text_completion", "text"), ("/v1/chat/completions", "chat.completion.chunk", "delta")],
)
async def test_each_route_streams_in_its_own_shape_and_ends_with_usage(path: str, kind: str, shown: str) -> None:
    *chunks, end = await streamed(path)
    assert {chunk["object"] for chunk in chunks} == {kind}
    assert [set(chunk["choices"][0]) for chunk in chunks] == [
        {"index", shown, "finish_reason"}
    ] * 4  # 1, 2, 2 and 1 tokens
    texts = [chunk["choices"][0][shown] for chunk in chunks]
    assert len("".join(t if isinstance(t, str) else t["content"] for t in texts)) == 6
    assert (end["choices"], end["usage"]["completion_tokens"]) == ([], 6)
