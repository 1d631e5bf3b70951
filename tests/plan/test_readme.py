"""config/README.md explains every key, and the plans that come with the project are good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from ddtree.plan import schema
from ddtree.plan.load import load
from ddtree.plan.workflow import Options

ROOT = Path(__file__).parents[2]
SECTIONS: dict[str, type[BaseModel]] = {
    "The plan": schema.Plan,
    "Models": schema.Model,
    "Sources of checkpoints": schema.Source,
    "Cost padding": schema.Pad,
    "Servers": schema.Server,
    "Workloads": schema.Workload,
    "Arrivals": schema.Arrivals,
    "Options of one run": Options,
}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_explained_in_its_section_and_no_other(section: str) -> None:
    text = (ROOT / "config/README.md").read_text()
    body = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    assert body, f"config/README.md has no section {section}"
    explained = set(re.findall(r"^\| `(\w+)` \|", body[1], re.M))
    assert explained == set(SECTIONS[section].model_fields)


@pytest.mark.parametrize("plan", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_every_plan_that_comes_with_the_project_is_good(plan: Path) -> None:
    assert load([plan], root=ROOT).plan == plan.stem
