"""How the plugin ddtree.sglang_plugin is told which trees to build, and what it must then say that it builds."""

from __future__ import annotations

from pathlib import Path

from ddtree.models.files import block_size
from ddtree.plan.schema import TREE_TOPK, Server
from ddtree.sglang_plugin import config


def trees(server: Server, drafter: str | Path) -> config.Config:
    """The plugin's configuration for this server. Raises ValueError for a drafter that does not tell its block size."""
    block = block_size(Path(drafter))
    if block is None:
        raise ValueError(f"{drafter}/config.json: tells no block_size; allowed: the folder of a DFlash drafter")
    # A step's slots also hold the drafter's block, so that fewer rows are not possible.
    rows = block if server.shadow else max(block, (server.budget or 0) + 1)
    return config.Config(
        budget=server.budget or rows - 1,
        topk=server.topk or TREE_TOPK,
        block_size=block,
        rows=rows,
        draft_window=server.draft_window,
        shadow=server.shadow,
    )


def flags(wanted: config.Config) -> dict[str, object]:
    """SGLang's own options; above 1 its top-k means that trees are verified."""
    return {"speculative_num_draft_tokens": wanted.rows, "speculative_eagle_topk": max(2, wanted.topk)}


def environment(wanted: config.Config) -> dict[str, str]:
    return {
        config.BUDGET: str(wanted.budget),
        config.TOPK: str(wanted.topk),
        config.SHADOW: str(int(wanted.shadow)),
    }
