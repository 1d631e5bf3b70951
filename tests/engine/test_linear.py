from __future__ import annotations

import pytest
import torch

from ddtree.engine.linear import BLOCK, make_linear


@pytest.mark.parametrize("rows", [1, 3, 16, 70])
@pytest.mark.parametrize("out", [20, BLOCK, 2 * BLOCK, 2 * BLOCK + 7])
@pytest.mark.parametrize("biased", [True, False])
def test_every_weight_layout_is_the_same_linear_map(rows: int, out: int, biased: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight = torch.randn(rows, 48, generator=generator), torch.randn(out, 48, generator=generator)
    bias = torch.randn(out, generator=generator) if biased else None
    expected = torch.nn.functional.linear(x, weight, bias)
    assert torch.allclose(make_linear(weight, bias)(x), expected, atol=1e-4)
    half = make_linear(weight.bfloat16(), None if bias is None else bias.bfloat16())(x.bfloat16())
    assert torch.allclose(half.float(), expected, atol=0.5)
