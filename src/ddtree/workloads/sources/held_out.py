"""Short single-turn prompts of six categories that the drafter of the default plan was not trained on."""

from __future__ import annotations

import json

from ddtree.workloads.draft import DATA, Asked, Draft, Drafts, WorkloadError, interleaved, user


def held_out(asked: Asked) -> Drafts:
    """`prompts` of the 40, spread evenly over the categories: a longer list begins with the shorter one."""
    content = json.loads((DATA / "held_out.json").read_text())
    columns = [
        [(f"{category}-{i}", category, text) for i, text in enumerate(prompts)]
        for category, prompts in content["prompts"].items()
    ]
    rows = interleaved(asked.random(), columns)
    n = asked.workload.prompts
    if n > len(rows):
        raise WorkloadError(f"prompts: {n} is too many for source held_out; allowed: 1 to {len(rows)}")
    warmup = [(f"warm-up-{i}", "warm-up", text) for i, text in enumerate(content["warmup"])]
    measured, warm = ([Draft(i, c, (user(t),)) for i, c, t in part] for part in (rows[:n], warmup[: asked.warmup]))
    return Drafts(content["source"], measured, warm)
