"""The Gated DeltaNet over a tree: every node continues its parent's state, so siblings never see each other.

Per value head the state is a matrix S [k_dim, v_dim]. A token with query q, key k, value v, decay a and write strength
b makes of it (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024, equation 10):

    S = a S_parent + k (b (v - (a S_parent)^T k))^T,    o = S^T q

Before that, a causal convolution mixes each channel with its last inputs: those of the node's ancestors.
"""

from __future__ import annotations

from itertools import groupby

import torch

from ddtree.engine.config import Hybrid
from ddtree.tree import Tree


class DeltaState:
    """One request's state in one layer: committed, and that of every node of the block computed last."""

    def __init__(self, config: Hybrid, like: torch.Tensor) -> None:
        self.memory = like.new_zeros(config.v_heads, config.k_dim, config.v_dim, dtype=torch.float32)
        self.window = like.new_zeros(config.kernel - 1, config.channels)  # last inputs of the convolution
        self.inputs = self.window[:0]
        self.memories = self.memory[:0]

    def convolve(self, inputs: torch.Tensor, weight: torch.Tensor, tree: Tree) -> torch.Tensor:
        """Causal convolution of inputs [n, channels] along each node's path; weight [channels, kernel]."""
        self.inputs = inputs
        seen = torch.cat([self.window, inputs])[torch.tensor(ancestry(tree, weight.shape[1]), device=inputs.device)]
        return torch.einsum("nkc,ck->nc", seen, weight)

    def scan(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        decay: torch.Tensor,
        strength: torch.Tensor,
        tree: Tree,
        keep: bool,
    ) -> torch.Tensor:
        """q, k [n, heads, k_dim], v [n, heads, v_dim], decay and strength [n, heads] -> outputs [n, heads, v_dim].

        The nodes of one depth are computed together. Without `keep` the tree must be a chain that will be committed as
        a whole, such as a prompt: only its last state is kept.
        """
        n = len(tree)
        place = list(range(n)) if keep else [0] * n
        self.memories, out = self.memory.new_empty(place[-1] + 1, *self.memory.shape), torch.empty_like(v)
        before = self.memory.unsqueeze(0)
        for depth, nodes in levels(tree):
            if depth:
                before = self.memories[[place[tree.parents[node]] for node in nodes]]
            after, out[nodes] = delta(before, q[nodes], k[nodes], v[nodes], decay[nodes], strength[nodes])
            self.memories[[place[node] for node in nodes]] = after
        return out

    def commit(self, path: list[int]) -> None:
        """Keep the state after the accepted path of the block computed last."""
        self.memory = self.memories[path[-1] if len(self.memories) > 1 else 0].clone()
        rows = self.inputs if len(path) == len(self.inputs) else self.inputs[path]
        self.window = torch.cat([self.window, rows])[len(rows) :]
        self.inputs, self.memories = rows[:0], self.memories[:0]


def delta(
    memory: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    strength: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token on each of m states [m, heads, k_dim, v_dim]: the states after it and its outputs [m, heads, v_dim]."""
    memory = memory * decay[..., None, None]
    recalled = torch.einsum("mhkv,mhk->mhv", memory, k)
    memory = memory + k[..., None] * ((v - recalled) * strength[..., None])[..., None, :]
    return memory, torch.einsum("mhkv,mhk->mhv", memory, q)


def ancestry(tree: Tree, kernel: int) -> list[list[int]]:
    """Per node the rows of [window, block] that end at it: itself last, its ancestors before it, the window before
    them."""
    rows: list[list[int]] = []
    for node, parent in enumerate(tree.parents):
        before = rows[parent] if parent >= 0 else list(range(-1, kernel - 1))
        rows.append([*before[1:], kernel - 1 + node])
    return rows


def levels(tree: Tree) -> list[tuple[int, list[int]]]:
    """(depth, its nodes), from the root downwards."""
    ordered = sorted(range(len(tree)), key=lambda node: tree.depths[node])
    return [(depth, list(nodes)) for depth, nodes in groupby(ordered, key=lambda node: tree.depths[node])]
