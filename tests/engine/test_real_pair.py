"""The real model and its trained drafter: losslessness and acceptance on a few held-out prompts."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from engines import Answer, make_engine, run
from tokenizers import Tokenizer

from ddtree.engine.api import Sampling
from ddtree.engine.drafter import Drafter
from ddtree.engine.target import Target

pytestmark = pytest.mark.model

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "models/smollm2-135m/target"
DRAFTER = ROOT / "assets/smollm2-135m-dflash"
PAIR = (TARGET, DRAFTER)
PROMPTS = ["Write a Python function that checks whether a number is prime.", "Explain how photosynthesis works."]
METHODS: dict[str, tuple[str, dict[str, object]]] = {
    "autoregressive": ("autoregressive", {}),
    "lookup": ("prompt_lookup", {}),
    "chain": ("dflash", {}),
    "windowed chain": ("dflash", {"draft_window": 32}),
    "tree 7": ("ddtree", {"budget": 7}),
    "tree 31": ("ddtree", {"budget": 31}),
}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(TARGET / "tokenizer.json"))
    chat = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    return [tokenizer.encode(chat.format(p), add_special_tokens=False).ids for p in PROMPTS]


@pytest.fixture(scope="module")
def answers(prompts: list[list[int]]) -> dict[str, list[Answer]]:
    greedy = Sampling(max_new_tokens=32)
    return {
        name: run(make_engine(PAIR, method, **options), prompts, greedy) for name, (method, options) in METHODS.items()
    }


def test_every_method_gives_the_targets_greedy_text_or_a_near_tie(
    prompts: list[list[int]], answers: dict[str, list[Answer]]
) -> None:
    for name, found in answers.items():
        for prompt, reference, answer in zip(prompts, answers["autoregressive"], found, strict=True):
            pairs = enumerate(zip(reference.ids, answer.ids, strict=False))
            split = next((i for i, (a, b) in pairs if a != b), None)
            if split is None:
                assert answer.ids == reference.ids, name
                continue
            ids = prompt + reference.ids[: split + 1]
            scores = dict(make_engine(PAIR).score(ids, len(ids) - 1, 10)[0])
            assert scores[reference.ids[split]] - scores[answer.ids[split]] < 1e-3, name


def test_the_drafter_is_right_often_and_the_tree_more_often(answers: dict[str, list[Answer]]) -> None:
    def tokens_per_step(name: str) -> float:
        counters = [a.counters for a in answers[name] if a.counters is not None]
        tokens = sum(len(a.ids) for a in answers[name]) - sum(c.first_tokens for c in counters)
        return tokens / sum(c.verify_steps for c in counters)

    assert 2 < tokens_per_step("chain") < tokens_per_step("tree 31")


def test_drafts_equal_those_of_the_implementation_that_trained_the_drafter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DRAFTER / "train"))
    reference = importlib.import_module("dflash").Drafter.load(str(DRAFTER))
    target = Target(TARGET, 128, torch.float32, torch.device("cpu"))
    drafter = Drafter(DRAFTER, target, None, 128)
    features = torch.randn(20, 6 * 576, generator=torch.Generator().manual_seed(1)) * 5
    context = drafter.new_context(20)
    drafter.extend([context], [features])
    found = drafter.draft([context], [42], 15, 8)[0]
    with torch.no_grad():
        hidden = reference.draft(target.embedding, reference.extend(None, features, 0), 42, 20)
        expected = torch.nn.functional.linear(hidden, target.embedding).log_softmax(-1).topk(8, -1)
    assert found.tokens == expected.indices.tolist()
    assert torch.allclose(torch.tensor(found.log_probs), expected.values, atol=1e-3)
