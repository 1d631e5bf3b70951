"""A server without a model that tells the truth, or one chosen lie: for testing load clients, ours included."""

from ddtree.mock.lies import LIES
from ddtree.mock.script import Script
from ddtree.mock.server import Mock

__all__ = ["LIES", "Mock", "Script"]
