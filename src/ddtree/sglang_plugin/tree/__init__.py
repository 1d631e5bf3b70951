"""Draft trees on the device: from drafter logits to trees, masks, accepted paths and moved K/V rows.

Triton kernels for CUDA tensors, plain PyTorch (`reference`) for all others. Everything has fixed shapes, never waits
for the device and writes into tensors that the caller may keep, so that it can be captured in a CUDA graph. R requests,
L drafted positions, K candidates each, N = budget + 1 nodes, D = L + 1 depths, V tokens in the vocabulary.

One step is

    part = shortlist(logits, K)                      # tensor parallel: each rank with its first_id,
    best = merge(part)                               # then gather the ranks' results along dim 1 and merge again
    build_trees(best.ids.view(R, L, K), log_probs(best).view(R, L, K), roots, trees)
    write_positions(trees, seq_lens, positions); write_mask(trees, seq_lens, mask)
    ...                                              # the target computes the rows of all nodes
    choices = sample_rows(target_logits, temperatures, seed).view(R, N)
    walk(trees, choices, walks)
    move_rows(pointers, row_bytes, slots, walks)
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

from ddtree.sglang_plugin.tree import reference
from ddtree.sglang_plugin.tree.layout import MAX_NODES, Shortlist, Trees, Walks

__all__ = [
    "MAX_NODES",
    "Shortlist",
    "Trees",
    "Walks",
    "build_trees",
    "log_probs",
    "merge",
    "move_rows",
    "narrow",
    "reached",
    "sample_rows",
    "shortlist",
    "walk",
    "write_mask",
    "write_positions",
]


def shortlist(logits: torch.Tensor, k: int, first_id: int = 0) -> Shortlist:
    """The `k` best tokens (1 to 32) and the log-sum-exp of every chunk of the vocabulary: C = chunks.

    `logits` [rows, V] in float32, bfloat16 or float16, rows contiguous in themselves. NaN counts as -inf. `first_id` is
    the id of column 0: the start of this rank's share of the vocabulary. No float32 copy of the logits is made.
    """
    return _implementation(logits).shortlist(logits, k, first_id)


def merge(parts: Shortlist) -> Shortlist:
    """The best tokens of all C parts together: C = 1. Parts stand in the order of their ids, as chunks and ranks do."""
    return _implementation(parts.logits).merge(parts)


def log_probs(best: Shortlist) -> torch.Tensor:
    """Log-probs float32 [R, K] under the whole vocabulary, at most 0 and sorted downwards, of a merged shortlist."""
    # -inf logits stay -inf even where the whole row is; rounding could lift a certain token above 0.
    return torch.where(best.logits == -torch.inf, best.logits, best.logits - best.lse.unsqueeze(-1)).clamp(max=0)[:, 0]


def build_trees(tokens: torch.Tensor, log_probs: torch.Tensor, roots: torch.Tensor, out: Trees) -> None:
    """Write the trees of the N - 1 most probable prefixes (DDTree, arXiv 2604.12989), best first, into `out`.

    `tokens` int64 and `log_probs` float32 [R, L, K], each row sorted downwards and at most 0; `roots` int64 [R]; L and
    K below 1024. Ties go to the node whose parent was taken first. Candidates of log-prob -inf are never taken. The
    first n nodes are the tree of n nodes (see `narrow`).
    """
    _implementation(log_probs).build_trees(tokens, log_probs, roots, out)


def narrow(trees: Trees, nodes: int) -> Trees:
    """The trees' best `nodes` nodes, as a new contiguous Trees."""
    links = (trees.first_child, trees.next_sibling)
    kept = (x[:, :nodes] for x in links)
    first_child, next_sibling = (torch.where(x < nodes, x, -1) for x in kept)
    tokens, parents, depths = (x[:, :nodes].contiguous() for x in (trees.tokens, trees.parents, trees.depths))
    return Trees(tokens, parents, depths, first_child, next_sibling)


def write_positions(trees: Trees, seq_lens: torch.Tensor, positions: torch.Tensor) -> None:
    """positions int64 [R * N] = seq_len + depth: the root stands at position seq_len. `seq_lens` [R] int32 or int64."""
    torch.add(trees.depths, seq_lens.unsqueeze(1), out=positions.view(trees.depths.shape))


def write_mask(trees: Trees, seq_lens: torch.Tensor | None, mask: torch.Tensor) -> None:
    """What every node sees of the N nodes: itself and its ancestors. `mask` is bool or uint8, flat and long enough.

    With `seq_lens` [R], row q of request b has seq_lens[b] + N cells (SGLang's FULL_MASK), the requests one after the
    other; only its last N cells are written, as FA3 and Triton never read the others. With None every row has N cells
    (QLEN_ONLY).
    """
    _implementation(trees.parents).write_mask(trees, seq_lens, mask)


def sample_rows(logits: torch.Tensor, temperatures: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """One token int64 [rows] per row of `logits` [rows, V]: its arg-max (lowest id of equals) at temperature 0, else a
    sample of softmax(logits / temperature).

    `temperatures` float32 [rows]. `seed` int64 [1], on the device: change it between steps. Rows draw independently.
    """
    return _implementation(logits).sample_rows(logits, temperatures, seed)


def walk(trees: Trees, choices: torch.Tensor, out: Walks) -> None:
    """Descend from the root while the target's choice after a node is one of its children.

    `choices` int64 [R, N]: the target's token after every node, arg-max or sample. As each emitted token is the
    target's own choice given the tokens before it, the output has exactly the target's law (see ddtree.tree.walk).
    A path ends at D nodes at the latest.
    """
    _implementation(choices).walk(trees, choices, out)


def reached(trees: Trees, known: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Shadow mode: how many drafts int32 [R] each tree would have had accepted, were `known` the target's choices.

    `known` int64 [R, M] are the tokens that follow the root, the first `lengths` int32 [R] of them valid. A result
    equal to `lengths` is a lower bound: the walk ran out of known tokens.
    """
    return _implementation(known).reached(trees, known, lengths)


def move_rows(pointers: torch.Tensor, row_bytes: torch.Tensor, slots: torch.Tensor, walks: Walks) -> None:
    """Move the K/V rows of accepted paths to where a plain sequence keeps them: from slots[b, nodes[i]] to slots[b, i].

    `pointers` int64 or uint64 [M]: addresses of M row-contiguous buffers on the device (every layer's keys and values),
    `row_bytes` int64 [M]: bytes per slot, a multiple of 8. `slots` int64 [R, N], the slots of the verified nodes, all
    different. Paths that lie in place already cost no memory traffic.
    """
    _implementation(slots).move_rows(pointers, row_bytes, slots, walks)


def _implementation(tensor: torch.Tensor) -> ModuleType:
    if not tensor.is_cuda:
        return reference
    return importlib.import_module("ddtree.sglang_plugin.tree.kernels")  # needs Triton, which other machines may lack
