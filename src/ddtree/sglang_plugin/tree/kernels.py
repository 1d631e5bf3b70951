"""The device steps as Triton kernels: same names and contracts as `reference`."""

from ddtree.sglang_plugin.tree.nodes import build_trees, reached, walk, write_mask
from ddtree.sglang_plugin.tree.rows import move_rows
from ddtree.sglang_plugin.tree.vocabulary import merge, sample_rows, shortlist

__all__ = ["build_trees", "merge", "move_rows", "reached", "sample_rows", "shortlist", "walk", "write_mask"]
