from __future__ import annotations

import pytest
import torch

from ddtree.engine import best

VOCABULARIES = [1, 7, 96, 256, 1000, 2048]


@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize("k", [1, 3, 8, 40])
def test_topk_is_the_plain_one(vocab: int, k: int) -> None:
    logits = torch.randn(5, vocab, generator=torch.Generator().manual_seed(vocab))
    values, index = best.topk(logits, k)
    expected = logits.topk(min(k, vocab), -1)
    assert torch.equal(values, expected.values)
    assert torch.equal(index, expected.indices)


@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_ties_change_no_value_and_argmax_takes_the_lowest_id(vocab: int) -> None:
    logits = torch.randint(0, 3, (20, vocab), generator=torch.Generator().manual_seed(vocab)).float()
    values, index = best.topk(logits, 8)
    assert torch.equal(values, logits.topk(min(8, vocab), -1).values)
    assert torch.equal(logits.gather(1, index), values)
    assert all(len(set(row)) == len(row) for row in index.tolist())
    assert best.argmax(logits).tolist() == [row.index(max(row)) for row in logits.tolist()]
