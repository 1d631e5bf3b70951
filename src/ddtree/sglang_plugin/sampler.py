"""From the drafter's hidden states to the trees of a step, inside the drafter's CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ddtree.sglang_plugin.config import NAME, Config
from ddtree.sglang_plugin.tree import Shortlist, Trees, build_trees, log_probs, merge, shortlist


@dataclass(frozen=True, slots=True)
class Head:
    """This rank's share of the target's output head, which the drafter borrows."""

    weight: torch.Tensor  # [share of the vocabulary, hidden size]
    first_id: int  # id of row 0
    group: Any = None  # tensor-parallel group of more than one rank


def target_head(model: Any, group: Any) -> Head:
    """The head of a target model. Raises ValueError for heads whose logits are more than one matrix product."""
    head = getattr(model, "lm_head", None)
    weight = getattr(head, "weight", None)
    if weight is None or not torch.is_floating_point(weight):
        raise ValueError(f"{NAME}: the target has no unquantised lm_head")
    text = getattr(model.config, "text_config", model.config)
    for key in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        # The tree compares depths with one another, so that draft logits must be the model's own.
        if getattr(text, key, None) not in (None, 1, 1.0):
            raise ValueError(f"{NAME}: the target scales its logits ({key} in its config), which is not supported")
    several = group if group.world_size > 1 else None
    shard = getattr(head, "shard_indices", None)
    if shard is None:
        if several:
            raise ValueError(f"{NAME}: the target's lm_head does not say how it is split over {group.world_size} ranks")
        return Head(weight, 0)
    if shard.num_added_elements:
        raise ValueError(f"{NAME}: the target's lm_head has added tokens, which is not supported")
    return Head(weight[: shard.num_org_elements], shard.org_vocab_start_index, several)


class TreeSampler:
    """Called with the hidden states of a draft pass, while capturing and otherwise; writes `trees` in place.

    `trees` [capacity, rows] are verified. In shadow mode they are chains, and `shadow` holds the trees of the budget.
    """

    def __init__(self, head: Head, config: Config, capacity: int) -> None:
        self.head, self.config = head, config
        device = head.weight.device
        self.trees = Trees.empty(capacity, config.rows, device)
        self.shadow = Trees.empty(capacity, config.budget + 1, device) if config.shadow else None

    def __call__(self, hidden_states: torch.Tensor, input_ids: torch.Tensor) -> None:
        """`hidden_states` [R * block, H] of draft blocks `input_ids` [R * block], whose first tokens are the roots."""
        config, weight = self.config, self.head.weight
        requests = hidden_states.shape[0] // config.block_size
        roots = input_ids.view(requests, config.block_size)[:, 0].contiguous()
        drafted = hidden_states.view(requests, config.block_size, -1)[:, 1:].flatten(0, 1).to(weight.dtype)
        part = shortlist(drafted @ weight.T, config.topk, self.head.first_id)
        best = merge(gathered(merge(part), self.head.group) if self.head.group else part)
        shape = (requests, config.depth, config.topk)
        tokens, scores = best.ids.reshape(shape), log_probs(best).reshape(shape)
        trees = self.trees[:requests]
        if self.shadow is None:
            build_trees(tokens, scores, roots, trees)
            if config.budget + 1 < config.rows:
                prune(trees, config.budget + 1)
        else:
            build_trees(tokens, scores, roots, self.shadow[:requests])
            build_trees(tokens[..., :1].contiguous(), scores[..., :1].contiguous(), roots, trees)


def gathered(part: Shortlist, group: Any) -> Shortlist:
    """Every rank's shortlist, in the order of the ranks: K candidates and one sum per row travel, never logits."""

    def gather(own: torch.Tensor) -> torch.Tensor:
        every = own.new_empty((group.world_size * own.shape[0], *own.shape[1:]))
        group.all_gather_into_tensor(every, own.contiguous())
        return every.view(group.world_size, *own.shape).transpose(0, 1).flatten(1, 2).contiguous()

    return Shortlist(gather(part.logits), gather(part.ids), gather(part.lse))


def prune(trees: Trees, nodes: int) -> None:
    """Make all but the first `nodes` nodes unused, in place: the rest is the tree of that size."""
    for links in (trees.first_child, trees.next_sibling):
        links.masked_fill_(links >= nodes, -1)
        links[:, nodes:] = -1
    trees.tokens[:, nodes:] = trees.tokens[:, :1]
    trees.parents[:, nodes:] = 0
    trees.depths[:, nodes:] = 0
