from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
from engines import make_engine, run

from ddtree.engine.api import Sampling
from ddtree.engine.sampling import chooser, probabilities

PROMPT = [1, 3, 5]


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p() -> None:
    p = torch.tensor([0.1, 0.5, 0.15, 0.25])
    kept = probabilities(p.log(), 1.0, 0.7)
    assert torch.allclose(kept, torch.tensor([0.0, 2 / 3, 0.0, 1 / 3]))
    assert torch.allclose(probabilities(p.log(), 1.0, 1.0), p)
    assert torch.allclose(probabilities(p.log(), 0.5, 1.0), p**2 / (p**2).sum())
    assert probabilities(p.log(), 1.0, 1e-9).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_temperature_zero_takes_the_best_row_by_row() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]])
    choose = chooser(logits, Sampling(1), torch.Generator())
    assert [choose(1), choose(0)] == [0, 1]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("prompt_lookup", {}),
        ("dflash", {}),
        ("ddtree", {"budget": 15}),
        ("ddtree", {"budget": 15, "shadow": True}),
    ],
)
def test_sampled_output_has_the_targets_law(pair: tuple[Path, Path], method: str, options: dict[str, object]) -> None:
    temperature, top_p, length, n = 1.5, 0.9, 3, 1200
    engine = make_engine(pair, method, max_running_requests=64, **options)
    sampling = Sampling(max_new_tokens=length, temperature=temperature, top_p=top_p, ignore_eos=True)
    counts = Counter(tuple(a.ids) for a in run(engine, [PROMPT] * n, sampling))

    law: dict[tuple[int, ...], float] = {}
    for tokens in product(range(8), repeat=length):
        law[tokens] = 1.0
    rows: dict[tuple[int, ...], torch.Tensor] = {}
    for tokens in law:
        for i in range(length):
            if tokens[:i] not in rows:
                scores = engine.score([*PROMPT, *tokens[:i], 0], len(PROMPT) + i, 8)[0]
                logits = torch.empty(8)
                for token, log_prob in scores:
                    logits[token] = log_prob
                rows[tokens[:i]] = probabilities(logits, temperature, top_p)
            law[tokens] *= float(rows[tokens[:i]][tokens[i]])

    assert sum(law.values()) == pytest.approx(1.0, abs=1e-4)
    assert all(law[tokens] > 0 for tokens in counts)
    # rare outcomes are pooled, so that the statistic follows its law
    common = [t for t, p in law.items() if n * p >= 5]
    observed = [counts[t] for t in common] + [n - sum(counts[t] for t in common)]
    expected = [n * law[t] for t in common] + [n * (1 - sum(law[t] for t in common))]
    chi2 = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = len(expected) - 1
    assert freedom >= 10
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5


def test_the_same_seed_gives_the_same_samples(pair: tuple[Path, Path]) -> None:
    sampling = Sampling(max_new_tokens=20, temperature=1.5, ignore_eos=True)
    first, again, other = (run(make_engine(pair, seed=s), [PROMPT] * 2, sampling) for s in (1, 1, 2))
    assert [a.ids for a in first] == [a.ids for a in again]
    assert [a.ids for a in first] != [a.ids for a in other]
    assert first[0].ids != first[1].ids  # one prompt sampled twice is two samples
