"""The part of a step that no release changes: masks and positions before the target's pass, acceptance after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ddtree.sglang_plugin import accept
from ddtree.sglang_plugin.config import Config
from ddtree.sglang_plugin.sampler import Head, TreeSampler
from ddtree.sglang_plugin.shadow import Shadow
from ddtree.sglang_plugin.tree import Trees, Walks, move_rows, walk, write_mask, write_positions


@dataclass(frozen=True, slots=True)
class Commit:
    """What a step commits. D = block size."""

    walks: Walks
    rows: torch.Tensor  # int64 [R, D]: accepted rows in the flat batch
    seq_lens: torch.Tensor  # [R], after the step
    shadow: torch.Tensor | None  # int32 [R], see ddtree.sglang_plugin.shadow


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the requests of a batch sample."""

    sampling: Any  # SGLang's SamplingBatchInfo; None: greedily
    max_top_k: int = 1
    uniform_top_k: int | None = None


class TreeSteps:
    """Device state and work of the steps of one server: `capacity` requests at a time, `slots` request slots."""

    def __init__(self, head: Head, config: Config, capacity: int, slots: int, seed: int) -> None:
        device = head.weight.device
        self.config = config
        self.sampler = TreeSampler(head, config, capacity)
        self._mask = torch.empty(0, dtype=torch.bool, device=device)
        self._seed = torch.full((1,), seed, dtype=torch.int64, device=device)
        self._shadow = Shadow(slots, config.depth, config.budget + 1, device) if config.shadow else None

    def begin(self, request_slots: torch.Tensor) -> None:
        """Requests are prefilled into these slots."""
        if self._shadow is not None:
            self._shadow.forget(request_slots.long())

    def layout(self, trees: Trees, seq_lens: torch.Tensor, most_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions int64 [R * N] and the attention mask in SGLang's FULL_MASK layout.

        `most_tokens` is an upper bound of the sum of `seq_lens`, known without asking the device.
        """
        requests, nodes = trees.tokens.shape
        cells = nodes * (most_tokens + requests * nodes)
        if len(self._mask) < cells:
            self._mask = torch.ones(2 * cells, dtype=torch.bool, device=seq_lens.device)
        mask = self._mask[:cells]
        positions = torch.empty(requests * nodes, dtype=torch.int64, device=seq_lens.device)
        write_positions(trees, seq_lens, positions)
        write_mask(trees, seq_lens, mask)
        return positions, mask

    def accept(
        self, trees: Trees, logits: torch.Tensor, seq_lens: torch.Tensor, request_slots: torch.Tensor, info: Sampling
    ) -> Commit:
        """Walk down the trees by the target's choices."""
        nodes = trees.nodes
        self._seed += 1
        chosen = accept.choices(logits, info.sampling, nodes, self._seed, info.max_top_k, info.uniform_top_k)
        # New tensors at every step: the last step's are still being copied to the host.
        walks = Walks.empty(len(trees.tokens), self.config.block_size, logits.device)
        walk(trees, chosen, walks)
        shadow = None
        if self._shadow is not None and self.sampler.shadow is not None:
            shadow = self._shadow.score(request_slots, self.sampler.shadow[: len(trees.tokens)], walks)
        seq_lens = seq_lens + walks.lengths.to(seq_lens.dtype)
        return Commit(walks, accept.accepted_rows(walks, nodes), seq_lens, shadow)

    def compact(self, pool: Any, slots: torch.Tensor, walks: Walks) -> None:
        """Move the accepted nodes' K/V rows to the front of their request's `slots` [R, N], int64."""
        pointers, row_bytes = accept.row_buffers(pool)
        move_rows(pointers, row_bytes, slots, walks)
