"""What an edited plan makes Snakemake do, and how it refuses a wrong one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from small_bench import CELLS, MANIFESTS, PLAN, Bench

pytestmark = pytest.mark.slow
Copy = Callable[[Bench], Bench]


def edited(path: str, value: object) -> dict[str, object]:
    plan: Any = copy.deepcopy(PLAN)
    *above, last = path.split("/")
    at = plan
    for key in above:
        at = at[key]
    at[last] = value
    return plan


def test_only_what_an_edit_touches_is_measured_again(measured: Bench, copy_of: Copy) -> None:
    bench = copy_of(measured)
    before = bench.cells()
    bench.configure(edited("workloads/other/max_new_tokens", 9))
    status, output = bench.run(*MANIFESTS)
    assert status == 0, output
    after = bench.cells()
    assert {name for name in CELLS if after[name] != before[name]} == {"ar/other/c1", "tree/other/c1"}


def test_a_wrong_plan_is_one_line_and_nothing_starts(prepared: Bench, copy_of: Copy) -> None:
    bench = copy_of(prepared)
    bench.configure(edited("servers/tree/budgte", 3))
    status, output = bench.run(*MANIFESTS)
    assert status != 0
    assert output.splitlines()[-1].startswith(
        "config/ddtree.yaml: servers.tree.budgte: unknown key (did you mean budget?); allowed: engine,"
    )
    assert "Traceback" not in output
    assert not list((bench.folder / "logs").glob("sessions/**/*.log"))


def test_the_plan_is_shown_and_nothing_else_happens(prepared: Bench, copy_of: Copy) -> None:
    bench = copy_of(prepared)
    status, output = bench.run("plan")
    assert status == 0, output
    assert "6 cells, 0 done, 6 to do, 0 failed" in output
    assert not bench.cells()
