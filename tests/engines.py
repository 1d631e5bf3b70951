"""Running requests through an engine, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ddtree.engine.api import Counters, GenRequest, Sampling, Settings
from ddtree.engine.engine import Engine


@dataclass
class Answer:
    ids: list[int]
    finish: str | None
    counters: Counters | None
    chunks: list[list[int]]


def make_engine(pair: tuple[Path, Path], method: str = "autoregressive", **settings: object) -> Engine:
    base = Settings(target=pair[0], drafter=pair[1], method=method, threads=1, context_length=512)
    return Engine(replace(base, **settings))  # type: ignore[arg-type]


def run(engine: Engine, prompts: Iterable[list[int]], sampling: Sampling) -> list[Answer]:
    """All prompts at once; their answers in order."""
    answers: dict[str, Answer] = {}
    for i, prompt in enumerate(prompts):
        answers[str(i)] = Answer([], None, None, [])
        engine.add(GenRequest(str(i), prompt, sampling))
    while engine.has_work:
        for progress in engine.step():
            answer = answers[progress.rid]
            assert answer.finish is None
            answer.ids += progress.new_ids
            answer.chunks.append(progress.new_ids)
            answer.finish, answer.counters = progress.finish, progress.counters
    return list(answers.values())
