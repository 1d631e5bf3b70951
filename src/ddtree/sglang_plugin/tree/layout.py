"""The tensors that the steps of tree decoding hand to each other. R requests, N = budget + 1 nodes, D depths."""

from __future__ import annotations

from dataclasses import dataclass

import torch

MAX_NODES = 256  # root included


@dataclass(frozen=True, slots=True)
class Trees:
    """One draft tree per request, node 0 its root, in the order parent < first child < next sibling. All [R, N].

    A tree with fewer than N nodes ends in unused ones: token of the root, parent and depth 0, no links, so that no walk
    reaches them.
    """

    tokens: torch.Tensor  # int64
    parents: torch.Tensor  # int32; 0 for the root
    depths: torch.Tensor  # int32; 0 for the root
    first_child: torch.Tensor  # int64; -1: none
    next_sibling: torch.Tensor  # int64; -1: none

    @classmethod
    def empty(cls, requests: int, nodes: int, device: torch.device | str) -> Trees:
        """Uninitialised trees; ValueError when `nodes` is not in 2..256."""
        if not 2 <= nodes <= MAX_NODES:
            raise ValueError(f"a tree of {nodes - 1} drafts (allowed: 1 to {MAX_NODES - 1})")

        def made(dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(requests, nodes, dtype=dtype, device=device)

        return cls(made(torch.int64), made(torch.int32), made(torch.int32), made(torch.int64), made(torch.int64))

    def __getitem__(self, requests: slice) -> Trees:
        """The trees of a contiguous range of requests, as views."""
        return Trees(
            self.tokens[requests],
            self.parents[requests],
            self.depths[requests],
            self.first_child[requests],
            self.next_sibling[requests],
        )

    @property
    def nodes(self) -> int:
        return self.tokens.shape[1]


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The K best tokens of R rows of logits, out of C parts of the vocabulary each."""

    logits: torch.Tensor  # float32 [R, C, K], sorted downwards; -inf where a part has fewer than K tokens
    ids: torch.Tensor  # int64 [R, C, K]; of equal logits the lowest id comes first
    lse: torch.Tensor  # float32 [R, C]: log of the sum of exp over the whole part, not only the K best


@dataclass(frozen=True, slots=True)
class Walks:
    """What verification accepted. D is the longest path, root included: the drafter's block size."""

    nodes: torch.Tensor  # int64 [R, D]: accepted nodes, root first; 0 beyond `lengths`
    tokens: torch.Tensor  # int64 [R, D]: the tokens to commit, drafts then bonus; 0 beyond `lengths`
    lengths: torch.Tensor  # int32 [R]: nodes on the path = tokens to commit = accepted drafts + 1
    bonus: torch.Tensor  # int64 [R]: the target's own token, the last one committed and the next root

    @classmethod
    def empty(cls, requests: int, depth: int, device: torch.device | str) -> Walks:
        def made(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.empty(requests, *shape, dtype=dtype, device=device)

        return cls(made(torch.int64, depth), made(torch.int64, depth), made(torch.int32), made(torch.int64))

    def __getitem__(self, requests: slice) -> Walks:
        """The walks of a contiguous range of requests, as views."""
        return Walks(self.nodes[requests], self.tokens[requests], self.lengths[requests], self.bonus[requests])
