"""The weight layout of a linear layer, on which the price of verifying a few rows depends.

A plain `F.linear` on a CPU makes the BLAS rearrange the whole weight at every call with 4 to 32 rows, so that verifying
16 tokens costs nearly four decode steps. oneDNN keeps a weight in its own blocked layout, packed once, good for every
number of rows. Where it is missing, storing the transpose avoids the rearrangement too, less well.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Linear = Callable[[torch.Tensor], torch.Tensor]  # [rows, in] -> [rows, out]
PACKED_FOR_ROWS = 16  # a hint to oneDNN; the layout that it picks for 16 rows is good from 1 to 128


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """y = x W^T + b with W [out, in] in the fastest layout at hand. `weight` itself is not kept on a CPU."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return lambda x: F.linear(x, weight, bias)
    if _has_onednn():
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR_ROWS)
        run = torch.ops.mkldnn._linear_pointwise.default
        return lambda x: run(x, packed, bias, "none", [], "")
    transposed = weight.t().contiguous()
    if bias is None:
        return lambda x: x @ transposed
    return lambda x: torch.addmm(bias, x, transposed)


def _has_onednn() -> bool:
    """Whether this build has the packing operators, which PyTorch's own compiler uses, and they work here."""
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(torch.eye(16), PACKED_FOR_ROWS)
        x = torch.arange(32.0).view(2, 16)
        return torch.equal(torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], ""), x)
    except (AttributeError, RuntimeError):
        return False
