"""The life of a request in the engine: waiting, running, ending, being aborted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engines import make_engine, run

from ddtree.engine.api import GenRequest, Sampling

GREEDY = Sampling(max_new_tokens=6, ignore_eos=True)


def test_an_idle_engine_does_nothing(pair: tuple[Path, Path]) -> None:
    engine = make_engine(pair)
    assert not engine.has_work
    assert engine.step() == []


def test_requests_wait_for_a_slot(pair: tuple[Path, Path]) -> None:
    engine = make_engine(pair, max_running_requests=2)
    for rid in "abc":
        engine.add(GenRequest(rid, [1, 3], GREEDY))
    seen = [[p.rid for p in engine.step()] for _ in range(8)]
    assert all(sorted(rids) == ["a", "b"] for rids in seen[:6])
    assert seen[6:] == [["c"], ["c"]]


@pytest.mark.parametrize("method", ["autoregressive", "dflash"])
def test_abort_ends_running_and_waiting_requests(pair: tuple[Path, Path], method: str) -> None:
    engine = make_engine(pair, method, max_running_requests=1)
    for rid in "abc":
        engine.add(GenRequest(rid, [1, 3], Sampling(50, ignore_eos=True)))
    engine.step()
    for rid in ("a", "b", "unknown"):
        engine.abort(rid)
    progress = engine.step()
    assert [(p.rid, p.finish) for p in progress] == [("a", "abort"), ("b", "abort"), ("c", None)]
    assert progress[0].new_ids == []
    assert (progress[0].counters is None) == (method == "autoregressive")
    engine.abort("c")
    assert engine.has_work
    assert [p.finish for p in engine.step()] == ["abort"]
    assert not engine.has_work


def test_an_end_token_of_the_model_ends_the_answer_unless_ignored(pair: tuple[Path, Path]) -> None:
    engine = make_engine(pair)
    for prompt in ([a, b] for a in range(8) for b in range(8)):
        whole = run(engine, [prompt], Sampling(max_new_tokens=30, ignore_eos=True))[0]
        if 2 in whole.ids:
            break
    assert 2 in whole.ids
    answer = run(engine, [prompt], Sampling(max_new_tokens=30))[0]
    assert answer.finish == "stop"
    assert answer.ids == whole.ids[: whole.ids.index(2) + 1]


def test_autoregressive_decoding_reports_no_speculation(pair: tuple[Path, Path]) -> None:
    answer = run(make_engine(pair), [[1, 3]], GREEDY)[0]
    assert answer.counters is None
    assert [len(chunk) for chunk in answer.chunks] == [1] * 6


def test_scores_are_the_log_probs_that_greedy_decoding_saw(pair: tuple[Path, Path]) -> None:
    engine = make_engine(pair)
    prompt = [1, 3, 5, 7]
    ids = prompt + run(engine, [prompt], Sampling(max_new_tokens=90, ignore_eos=True))[0].ids
    scores = engine.score(ids, len(prompt), 8)
    assert [row[0][0] for row in scores] == ids[len(prompt) :]
    for row in scores:
        values = [p for _, p in row]
        assert values == sorted(values, reverse=True)
        assert torch.tensor(values).exp().sum() == pytest.approx(1.0, abs=1e-4)
    assert [row[:2] for row in scores] == engine.score(ids, len(prompt), 2)
    assert engine.score(ids, len(ids), 2) == []


@pytest.mark.parametrize(("start", "top"), [(0, 1), (4, 1), (1, 0)])
def test_scoring_outside_the_text_is_refused(pair: tuple[Path, Path], start: int, top: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        make_engine(pair).score([1, 2, 3], start, top)


def test_info_tells_what_is_in_force(pair: tuple[Path, Path]) -> None:
    info = make_engine(pair, "ddtree", budget=7, draft_window=9).info()
    assert {k: info[k] for k in ("method", "budget", "topk", "draft_window", "shadow", "draft_tokens")} == {
        "method": "ddtree",
        "budget": 7,
        "topk": 8,
        "draft_window": 9,
        "shadow": False,
        "draft_tokens": None,
    }
    assert (info["block_size"], info["vocab_size"], info["eos_token_ids"], info["threads"]) == (6, 8, [2], 1)
    assert make_engine(pair, "dflash").info()["draft_tokens"] == 5
    assert make_engine(pair, "prompt_lookup").info()["ngram_max"] == 3
    assert make_engine(pair).info()["block_size"] is None
