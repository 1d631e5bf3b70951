"""The weight layout of a linear layer, on which the price of verifying a few rows depends.

A plain `F.linear` on a CPU makes the BLAS rearrange the whole weight at every call with 4 to 32 rows, so that verifying
16 tokens costs nearly three times what decoding one costs. Here the weight is cut into blocks of output columns, each
stored input by output: a block stays in the second-level cache while it is used and the product of few rows runs at
nearly the speed at which the weights can be read. One copy of the weights serves every number of rows, and one row is
as fast as it is with any other layout, so that autoregressive decoding is not handicapped.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Linear = Callable[[torch.Tensor], torch.Tensor]  # [rows, in] -> [rows, out]
BLOCK = 96  # output columns; a multiple of the 48 that AVX-512 kernels take at a time


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """y = x W^T + b with W [out, in] in the fastest layout at hand. `weight` itself is not kept on a CPU."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return lambda x: F.linear(x, weight, bias)
    out, columns = weight.shape
    padded = F.pad(weight, (0, 0, 0, -out % BLOCK))
    blocks = padded.view(-1, BLOCK, columns).transpose(1, 2).contiguous()
    n, width = len(blocks), len(padded)

    def product(x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        y = torch.bmm(x.expand(n, rows, columns), blocks).transpose(0, 1).reshape(rows, width)
        return y if width == out else y[:, :out]

    if bias is None:
        return product
    return lambda x: product(x) + bias
