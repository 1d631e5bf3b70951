"""A small valid plan to spoil."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

PLAN: dict[str, Any] = {
    "plan": "small",
    "baseline": "ar",
    "chain": "chain",
    "models": {"tiny": {"target": {"path": "target"}, "drafter": {"path": "drafter"}}},
    "server_defaults": {"model": "tiny"},
    "servers": {
        "ar": {"method": "autoregressive"},
        "chain": {"method": "dflash"},
        "tree": {"method": "ddtree", "budget": 7},
    },
    "concurrency": [1, 4],
    "workloads": {"short": {"source": "held_out"}, "code": {"source": "human_eval", "role": "quality"}},
}


def checkpoints(root: Path, block_size: int = 8) -> None:
    """Folders that look like a target and a drafter to the plan's checks."""
    for name, config in (("target", {}), ("drafter", {"block_size": block_size})):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "config.json").write_text(json.dumps(config))
        (root / name / "model.safetensors").write_bytes(b"")


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """PLAN with dotted keys set; the value `...` removes the key."""
    plan = copy.deepcopy(PLAN)
    for dotted, value in changes:
        *above, last = dotted.split("/")
        at = plan
        for key in above:
            at = at[key]
        if value is ...:
            del at[last]
        else:
            at[last] = value
    return plan


def write(root: Path, plan: dict[str, Any]) -> Path:
    path = root / "plan.yaml"
    path.write_text(yaml.safe_dump(plan, sort_keys=False))
    return path
