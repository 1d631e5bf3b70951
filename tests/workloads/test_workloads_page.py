"""docs/workloads.md names every source, subset and pin that the program knows, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from ddtree.workloads import SOURCES
from ddtree.workloads.fetch import PACKAGES
from ddtree.workloads.sources import paper, spec_benches

PAGE = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
ROWS = {row[1]: row[0] for row in re.finditer(r"^\| `([\w-]+)` \|.*$", PAGE, re.M)}


def test_every_source_and_task_has_its_row_and_no_other() -> None:
    assert set(ROWS) == {*SOURCES, *paper.SUBSETS}


def test_commits_are_those_that_are_read() -> None:
    pins = {name: (task.repository, task.revision) for name, task in paper.TASKS.items()}
    pins["speed_bench"] = ("nvidia/SPEED-Bench", spec_benches.SPEED_REVISION)
    pins["spec_bench"] = ("hemingkx/Spec-Bench", spec_benches.SPEC_REVISION)
    for name, (repository, revision) in pins.items():
        assert f"`{repository}`" in ROWS[name]
        assert f"`{revision[:8]}`" in ROWS[name]


def test_packages_are_those_of_the_locks() -> None:
    for lock in PACKAGES.glob("*.txt"):
        pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.M))
        named = re.search(r"\| ([\w-]+) ([\d.]+)[^|]*sha256 \|", ROWS[lock.stem])
        assert named, lock
        assert pinned[named[1]] == named[2]
