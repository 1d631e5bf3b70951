import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fake_engine import FakeEngine, conversation, prompt_set
from hypothesis import given
from hypothesis import strategies as st

from ddtree.bench.arrivals import BadArrivals, offsets
from ddtree.bench.client import measure
from ddtree.bench.metrics import request_metrics, run_metrics
from ddtree.bench.records import Run
from ddtree.plan.schema import Arrivals, Workload


async def loaded(concurrency: int, **arrivals: Any) -> tuple[Run, FakeEngine]:
    workload = Workload(source="s", max_new_tokens=16, arrivals=Arrivals(**arrivals))
    prompts = prompt_set(*(conversation(str(i), [10 + i, 4, 5], [7]) for i in range(4)))
    async with FakeEngine().serve() as engine:
        return await measure(engine.url, prompts, workload, concurrency, 0), engine


def firsts(run: Run) -> list[tuple[float, float]]:
    """(due, sent) of the first turns."""
    return [(r.due_s, r.sent_s) for r in run.requests if r.due_s is not None]


async def test_a_conversation_is_sent_when_it_is_due_and_not_before() -> None:
    run, _ = await loaded(8, rate=50.0, seed=3)
    wanted = offsets(Arrivals(rate=50.0, seed=3), 4)
    due = [at for at, _ in firsts(run)]
    assert [at - due[0] for at in due] == pytest.approx([at - wanted[0] for at in wanted])
    assert all(sent >= at for at, sent in firsts(run))
    assert [r.turn for r in run.requests if r.due_s is None] == [1, 1, 1, 1]


async def test_recorded_times_are_replayed_and_may_coincide(tmp_path: Path) -> None:
    (tmp_path / "times.json").write_text("[1000.5, 1000.5, 1000.6, 1000.7, 2000]")
    run, _ = await loaded(8, replay=str(tmp_path / "times.json"))
    due = [at for at, _ in firsts(run)]
    assert [at - due[0] for at in due] == pytest.approx([0, 0, 0.1, 0.2])


async def test_no_more_than_the_concurrency_are_in_flight_and_the_wait_counts() -> None:
    run, engine = await loaded(1, rate=1e6)
    assert engine.most_open == 1
    for (_, before), (due, sent) in itertools.pairwise(firsts(run)):
        assert due < before < sent
    first = run.requests[-2]
    assert first.due_s is not None
    assert request_metrics(first).ttft_s == first.chunks[0][0] - first.due_s
    assert run_metrics(run, 1).steady_s is None


async def test_arrivals_do_not_wait_for_answers() -> None:
    everyone = 0

    async def answer_when_all_are_there(body: dict[str, Any], out: web.StreamResponse) -> None:
        nonlocal everyone
        everyone += 1
        if everyone == 3:
            gate.set()
        await gate.wait()
        await engine.answer(body, out)

    gate = asyncio.Event()
    workload = Workload(source="s", arrivals=Arrivals(rate=1000.0), request_timeout_s=10)
    async with FakeEngine().serve() as engine:
        engine.script = answer_when_all_are_there
        prompts = prompt_set(*(conversation(str(i), [i, 4, 5]) for i in range(3)))
        run = await measure(engine.url, prompts, workload, 3, 0)
    assert not [r for r in run.requests if r.failure]


@given(rate=st.floats(0.01, 1e4), seed=st.integers(0, 99), count=st.integers(1, 50))
def test_a_poisson_process_is_fixed_by_its_seed_and_grows(rate: float, seed: int, count: int) -> None:
    times = offsets(Arrivals(rate=rate, seed=seed), count)
    assert times == offsets(Arrivals(rate=rate, seed=seed), count + 1)[:count]
    assert all(0 <= a <= b for a, b in itertools.pairwise([0.0, *times]))


def test_a_poisson_process_has_the_mean_and_the_spread_of_its_rate() -> None:
    times = offsets(Arrivals(rate=4.0), 20_000)
    gaps = [b - a for a, b in itertools.pairwise([0.0, *times])]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.25, rel=0.03)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(0.25**2, rel=0.06)


@pytest.mark.parametrize("text", ["[3, 4.5, 9]", "3\n4.5\n9\n"])
def test_recorded_times_start_at_their_first(tmp_path: Path, text: str) -> None:
    (tmp_path / "t").write_text(text)
    assert offsets(Arrivals(replay="t"), 2, tmp_path) == [0, 1.5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("x", "no JSON"),
        ("[2, 1]", "not what is allowed"),
        ('["1", "2"]', "not what is allowed"),
        ("[]", "not what is allowed"),
        (json.dumps([float("inf")] * 2), "not what is allowed"),
        ("[1]", "has 1 times for 2 prompts; allowed: 2 or more"),
    ],
)
def test_times_that_cannot_be_used_are_refused_in_one_line(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "t").write_text(text)
    with pytest.raises(BadArrivals, match=said) as refused:
        offsets(Arrivals(replay="t"), 2, tmp_path)
    assert "\n" not in str(refused.value)
