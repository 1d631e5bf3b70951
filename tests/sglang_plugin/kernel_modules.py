"""The two implementations of the device steps. Triton's interpreter runs the kernels on the CPU."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it while it is imported, so it is imported here first

import triton
import triton.language as tl

from ddtree.sglang_plugin.tree import kernels, reference

__all__ = ["IMPLEMENTATIONS", "kernels", "reference", "tl", "triton"]

IMPLEMENTATIONS = [kernels, reference]
