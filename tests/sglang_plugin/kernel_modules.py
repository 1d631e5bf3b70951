"""The two implementations of the device steps."""

from ddtree.sglang_plugin.tree import kernels, reference

IMPLEMENTATIONS = [kernels, reference]
