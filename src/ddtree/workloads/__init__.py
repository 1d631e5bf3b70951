"""Workloads: sources of real text, prompts of exact length, multi-turn sessions."""
