"""From the target's logits to what a step commits. Nothing here waits for the device."""

from __future__ import annotations

from typing import Any

import torch

from ddtree.sglang_plugin.config import NAME
from ddtree.sglang_plugin.tree import Walks, sample_rows


def choices(
    logits: torch.Tensor, sampling: Any, nodes: int, seed: torch.Tensor, max_top_k: int, uniform_top_k: int | None
) -> torch.Tensor:
    """The target's token after every node, int64 [R, nodes]: arg-max, or a sample of its filtered distribution.

    `logits` [R * nodes, V] with penalties applied. As each token is the target's own choice given the tokens before it,
    whichever of them a walk emits has exactly the target's law.
    """
    if sampling is None or sampling.is_all_greedy:
        return logits.argmax(-1).view(-1, nodes)
    if not (sampling.need_top_k_sampling or sampling.need_top_p_sampling or sampling.need_min_p_sampling):
        heat = sampling.temperatures.view(-1).float().repeat_interleave(nodes)
        return sample_rows(logits, heat, seed).view(-1, nodes)
    from sglang.srt.speculative.dflash_utils import build_dflash_verify_target_probs

    probs = build_dflash_verify_target_probs(
        next_token_logits=logits,
        sampling_info=sampling,
        draft_token_num=nodes,
        bs=len(logits) // nodes,
        max_top_k=max_top_k,
        uniform_top_k_value=uniform_top_k,
    ).flatten(0, 1)
    if sampling.need_min_p_sampling:
        floor = sampling.min_ps.view(-1).repeat_interleave(nodes).unsqueeze(1) * probs.amax(-1, keepdim=True)
        probs = probs.masked_fill(probs < floor, 0)
    ones = torch.ones(len(probs), dtype=torch.float32, device=probs.device)
    return sample_rows(probs.log(), ones, seed).view(-1, nodes)


def accepted_rows(walks: Walks, nodes: int) -> torch.Tensor:
    """Rows of the accepted nodes in the flat batch of R * nodes rows, int64 [R, D]; the root's beyond the length."""
    first = torch.arange(len(walks.nodes), device=walks.nodes.device) * nodes
    return walks.nodes + first.unsqueeze(1)


def row_buffers(pool: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Addresses and bytes per slot of all K/V buffers. Raises ValueError for layouts that do not keep a slot in a row.

    Asked for at every step, as SGLang may move the buffers after graph capture.
    """
    pool = getattr(pool, "full_kv_pool", pool)
    if getattr(pool, "use_hnd", False) or not hasattr(pool, "data_ptrs"):
        raise ValueError(f"{NAME}: the K/V cache {type(pool).__name__} is not supported")
    return pool.data_ptrs, pool.data_strides
