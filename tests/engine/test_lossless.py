"""Every method must give the tokens that the target alone gives, whatever is drafted and however it is batched."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from engines import Answer, make_engine, run
from tiny import tiny_pair

from ddtree.engine.api import Sampling

METHODS: list[tuple[str, dict[str, object]]] = [
    ("prompt_lookup", {}),
    ("prompt_lookup", {"draft_tokens": 1, "ngram_max": 1}),
    ("dflash", {}),
    ("dflash", {"draft_tokens": 2}),
    ("dflash", {"draft_window": 3}),
    ("ddtree", {"budget": 1}),
    ("ddtree", {"budget": 4, "topk": 1}),
    ("ddtree", {"budget": 7, "topk": 3}),
    ("ddtree", {"budget": 15}),
    ("ddtree", {"budget": 31, "draft_window": 5}),
    ("ddtree", {"budget": 100, "topk": 2}),
    ("ddtree", {"budget": 15, "shadow": True}),
]
IDS = [f"{method}-{'-'.join(map(str, options.values()))}" for method, options in METHODS]
GREEDY = Sampling(max_new_tokens=60, ignore_eos=True)


def prompts() -> list[list[int]]:
    rng = random.Random(3)
    return [[rng.randrange(8) for _ in range(n)] for n in (1, 2, 5, 9, 17, 40)]


@pytest.fixture(scope="module")
def expected(pair: tuple[Path, Path]) -> list[Answer]:
    return [run(make_engine(pair), [prompt], GREEDY)[0] for prompt in prompts()]


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
def test_greedy_output_is_the_targets_own(
    pair: tuple[Path, Path], expected: list[Answer], method: str, options: dict[str, object]
) -> None:
    engine = make_engine(pair, method, **options)
    accepted = 0
    for prompt, reference in zip(prompts(), expected, strict=True):
        answer = run(engine, [prompt], GREEDY)[0]
        assert answer.ids == reference.ids
        assert answer.finish == "length"
        assert answer.counters is not None
        accepted += sum(d * n for d, n in enumerate(answer.counters.histogram))
    assert accepted > 0  # otherwise nothing but the bonus token was ever tested


@pytest.mark.parametrize(("method", "options"), [("autoregressive", {}), *METHODS], ids=["autoregressive", *IDS])
def test_batching_changes_no_token(
    pair: tuple[Path, Path], expected: list[Answer], method: str, options: dict[str, object]
) -> None:
    answers = run(make_engine(pair, method, max_running_requests=4, **options), prompts(), GREEDY)
    assert [a.ids for a in answers] == [a.ids for a in expected]


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
def test_a_stop_token_inside_an_accepted_run_ends_the_answer(
    pair: tuple[Path, Path], expected: list[Answer], method: str, options: dict[str, object]
) -> None:
    engine = make_engine(pair, method, **options)
    for prompt, reference in zip(prompts()[3:], expected[3:], strict=True):
        for stop in sorted(set(reference.ids)):
            sampling = Sampling(max_new_tokens=60, stop_token_ids=frozenset([stop]))
            cut = min(i for i, token in enumerate(reference.ids) if token in (stop, 2)) + 1
            answer = run(engine, [prompt], sampling)[0]
            assert answer.ids == reference.ids[:cut]
            assert answer.finish == "stop"


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
def test_counters_add_up_to_the_tokens_wherever_the_limit_falls(
    pair: tuple[Path, Path], expected: list[Answer], method: str, options: dict[str, object]
) -> None:
    engine = make_engine(pair, method, **options)
    for limit in (1, 2, 3, 4, 5, 7, 12):
        answers = run(engine, prompts(), Sampling(max_new_tokens=limit, ignore_eos=True))
        for answer, reference in zip(answers, expected, strict=True):
            assert answer.ids == reference.ids[:limit]
            assert answer.finish == "length"
            c = answer.counters
            assert c is not None
            assert c.first_tokens == 1
            assert c.verify_steps == sum(c.histogram) == len(answer.chunks) - 1
            drafted = sum(d * n for d, n in enumerate(c.histogram))
            # every step but a cut one brings its bonus token as well
            assert c.verify_steps - 1 <= limit - 1 - drafted <= c.verify_steps or c.verify_steps == 0
            assert c.verified_nodes >= c.verify_steps
            for chunk in answer.chunks[1:-1]:
                assert len(chunk) - 1 < len(c.histogram)


def test_a_tree_of_all_tokens_accepts_at_every_step(tmp_path: Path) -> None:
    engine = make_engine(tiny_pair(tmp_path, vocab=8, block=2), "ddtree", budget=8)
    counters = run(engine, [[1, 3, 5]], Sampling(max_new_tokens=21, ignore_eos=True))[0].counters
    assert counters is not None
    assert counters.histogram == [0, 10]
    assert counters.verified_nodes == 90
