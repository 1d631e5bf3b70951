"""Teacher-forced scores of a run's answers, by which a divergence from them can be judged."""

from __future__ import annotations

import aiohttp

from ddtree.bench.dialogue import contexts
from ddtree.bench.records import Audit, PromptSet, Run
from ddtree.bench.sender import connection

SCORE_S = 300.0


class ScoreFailed(Exception):
    """The server did not score an answer."""


async def score(url: str, run: Run, prompts: PromptSet, timeout_s: float = SCORE_S) -> list[Audit]:
    """For every successful request the two best tokens at each output position, given prompt and answer so far.

    Raises ScoreFailed, with the conversation and what the server said.
    """
    async with connection() as http:
        return [
            Audit(
                conversation=request.conversation,
                turn=request.turn,
                top=await _top_two(http, url, context, request.output_ids, request.conversation, timeout_s),
            )
            for request, context in contexts(prompts, run)
        ]


async def _top_two(
    http: aiohttp.ClientSession, url: str, context: list[int], answer: list[int], name: str, timeout_s: float
) -> list[tuple[int, float, int, float]]:
    body = {
        "input_ids": context + answer,
        "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
        "return_logprob": True,
        # The entry of the start position itself may be null, so one position earlier is asked for.
        "logprob_start_len": len(context) - 1,
        "top_logprobs_num": 2,
        "stream": False,
    }
    try:
        async with http.post(f"{url}/generate", json=body, timeout=aiohttp.ClientTimeout(total=timeout_s)) as reply:
            if reply.status != 200:
                raise ScoreFailed(f"{name}: HTTP {reply.status}: {(await reply.text())[:300]}")
            scored = (await reply.json())["meta_info"]["input_top_logprobs"]
        if len(scored) != len(answer) + 1:
            raise ScoreFailed(f"{name}: {len(scored)} scores for {len(answer)} tokens and the one before them")
        return [(int(a[1]), float(a[0]), int(b[1]), float(b[0])) for a, b in scored[1:]]
    except (aiohttp.ClientError, OSError, LookupError, ValueError, TypeError) as error:
        raise ScoreFailed(f"{name}: {type(error).__name__} {error}") from None
