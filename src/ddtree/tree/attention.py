"""What a tree's nodes see when all of them are verified in one forward pass."""

from __future__ import annotations

import numpy as np
import torch

from ddtree.tree.build import Tree


def visibility(tree: Tree) -> torch.Tensor:
    """Boolean [N, N]: row i sees column j when j is i itself or one of its ancestors."""
    seen = np.eye(len(tree), dtype=np.bool_)
    for node, parent in enumerate(tree.parents):
        if parent >= 0:
            seen[node, : parent + 1] |= seen[parent, : parent + 1]
    return torch.from_numpy(seen)


def is_chain(tree: Tree) -> bool:
    """Whether node i + 1 is the child of node i throughout, so that the plain causal mask is the tree's mask."""
    return len(tree) == tree.depths[-1] + 1
