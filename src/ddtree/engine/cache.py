"""What a request keeps between forward passes, and the rows of a batch that extend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ddtree.engine.config import ModelConfig
from ddtree.tree import Tree, moves


class KVCache:
    """Keys and values of one request, preallocated: [attention layers, kv_heads, capacity, d]; `length` rows are
    committed."""

    def __init__(self, config: ModelConfig, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = (config.attention_layers, config.kv_heads, capacity, config.head_dim)
        self.k = torch.empty(shape, dtype=dtype, device=device)
        self.v = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Put k, v [rows, kv_heads, d] after the committed rows; return all keys and values up to there."""
        end = self.length + len(k)
        keys, values = self.k[layer, :, :end], self.v[layer, :, :end]
        keys[:, self.length :] = k.transpose(0, 1)
        values[:, self.length :] = v.transpose(0, 1)
        return keys, values

    def commit(self, path: list[int]) -> None:
        """Keep the accepted nodes of the block written last; only rows that are out of place move."""
        first, sources = moves(path)
        if sources:
            rows = torch.tensor(sources, device=self.k.device) + self.length
            start, end = self.length + first, self.length + len(path)
            self.k[:, :, start:end] = self.k[:, :, rows]
            self.v[:, :, start:end] = self.v[:, :, rows]
        self.length += len(path)


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of one request in a ragged batch: a block of tokens that follows its cache's committed rows."""

    cache: KVCache
    tree: Tree  # a prompt is a chain
    logits_from: int  # first row whose logits are wanted


@dataclass(frozen=True, slots=True)
class Batch:
    """The spans of one forward pass with what all layers need: rows per span, attention masks, and positions as cos
    and sin [rows, 1, d]."""

    spans: Sequence[Span]
    sizes: Sequence[int]
    biases: Sequence[torch.Tensor | None]
    rope: tuple[torch.Tensor, torch.Tensor]
