"""Streams of a real SGLang 0.5.16 on an H200 (SmolLM2-135M), byte for byte, with the metrics that they must give."""

import json
from pathlib import Path

import pytest

from ddtree.bench.metrics import request_metrics
from ddtree.bench.records import Request
from ddtree.bench.reply import Reply
from ddtree.servers.sglang_info import observed

DATA = Path(__file__).parents[1] / "data" / "sglang-0.5.16"
PROMPT_TOKENS = 22


def replay(name: str) -> tuple[Reply, Request]:
    """The recording with one event every tenth of a second."""
    reply = Reply(PROMPT_TOKENS, frozenset({2}))
    events = (DATA / name).read_bytes().split(b"\n\n")
    for number, event in enumerate(events[:-1]):
        reply.feed(0.1 * (number + 1), event + b"\n\n")
    reply.close()
    record = Request(
        conversation="a", turn=0, input_tokens=PROMPT_TOKENS, sent_s=0, chunks=reply.chunks, done_s=0.1 * len(events),
        finish_reason=reply.finish_reason, output_ids=reply.output_ids, text=reply.text,
    )  # fmt: skip
    return reply, record


@pytest.mark.parametrize(
    ("name", "tokens_of_chunks"),
    [("ar.generate.sse", list(range(1, 49))), ("df.generate.sse", [1, 7, 17, 33, 40, 47, 48])],
)
def test_chunks_tokens_and_times(name: str, tokens_of_chunks: list[int]) -> None:
    reply, request = replay(name)
    assert [tokens for _, tokens in request.chunks] == tokens_of_chunks
    assert (reply.finish_reason, reply.cached_tokens, len(reply.output_ids)) == ("length", 21, 48)
    metrics = request_metrics(request)
    assert metrics.ttft_s == pytest.approx(0.1)
    assert metrics.tpot_s == pytest.approx(0.1 * (len(tokens_of_chunks) - 1) / 47)
    assert len(metrics.itl_s) == 47
    assert sum(metrics.itl_s) == pytest.approx(0.1 * (len(tokens_of_chunks) - 1))


def test_the_chain_s_answer_is_the_autoregressive_one() -> None:
    assert replay("df.generate.sse")[0].output_ids == replay("ar.generate.sse")[0].output_ids


def test_the_chain_s_counters_add_up_to_the_tokens() -> None:
    plain, chain = replay("ar.generate.sse")[0].speculation, replay("df.generate.sse")[0].speculation
    assert plain is None
    assert chain
    assert (chain.verify_steps, chain.first_tokens, chain.verified_nodes) == (6, 1, 96)
    # Of 1 + 45 + 6 tokens that were made the limit cut four off: a bonus and three drafts.
    assert sum(d * n for d, n in enumerate(chain.histogram)) == 45 - 3


@pytest.mark.parametrize(("name", "algorithm"), [("ar", None), ("df", "DFLASH")])
def test_the_configuration_in_force_is_read(name: str, algorithm: str | None) -> None:
    info = observed(json.loads((DATA / f"{name}.server_info.json").read_text()), "")
    assert (info["version"], info["speculative_algorithm"]) == ("0.5.16", algorithm)
    assert info["effective_max_running_requests"] == 64
