"""How the plugin ddtree.sglang_plugin is told which trees to build, and what it must then say that it builds."""

from __future__ import annotations

import json
from pathlib import Path

from ddtree.plan.schema import Server
from ddtree.sglang_plugin import config

TOPK = 8  # candidates per depth, where the plan does not say


def trees(server: Server, drafter: str | Path) -> config.Config:
    """The plugin's configuration for this server. Raises ValueError for a drafter that does not tell its block size."""
    path = Path(drafter) / "config.json"
    try:
        block_size = int(json.loads(path.read_text())["block_size"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: tells no block_size; allowed: the folder of a DFlash drafter") from None
    # A step's slots also hold the drafter's block, so that fewer rows are not possible.
    rows = block_size if server.shadow else max(block_size, (server.budget or 0) + 1)
    return config.Config(
        budget=server.budget or rows - 1,
        topk=server.topk or TOPK,
        block_size=block_size,
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
