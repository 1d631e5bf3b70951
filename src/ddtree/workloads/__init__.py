"""Workloads: sources of real text, prompts of exact length, multi-turn sessions."""

from ddtree.workloads.draft import WorkloadError
from ddtree.workloads.files import read, write
from ddtree.workloads.prompts import build, spec_hash
from ddtree.workloads.registry import SOURCES

__all__ = ["SOURCES", "WorkloadError", "build", "read", "spec_hash", "write"]
