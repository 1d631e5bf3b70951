"""DDTree itself: building, attention masks, acceptance. Pure functions, shared by every engine."""

from ddtree.tree.accept import Walk, moves, walk
from ddtree.tree.attention import is_chain, visibility
from ddtree.tree.build import Tree, best_first, chain

__all__ = ["Tree", "Walk", "best_first", "chain", "is_chain", "moves", "visibility", "walk"]
