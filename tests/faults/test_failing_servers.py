"""One plan, servers that fail in every way: the others are measured, the report has the reasons, the status tells."""

from __future__ import annotations

import copy
import csv
import json
from typing import Any

import pytest
from small_bench import PLAN, Bench

pytestmark = pytest.mark.slow
# Server -> what its start says, and the category of the reason.
FAILURES = {
    "oom": ("always torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out_of_memory"),
    "flag": ("always engine: error: unrecognized arguments: --budgget", "bad_flag"),
    "absent": ("always FileNotFoundError: [Errno 2] No such file or directory: 'tiny/config.json'", "missing_model"),
    "broken": ("always RuntimeError: the checkpoint has no layer 7", "crash_in_load"),
    "silent": ("always sleep", "start_timeout"),
    "liar": ("", "effective_differs"),
    "greedy": ("", "gpus"),
}


def plan() -> dict[str, object]:
    content: Any = copy.deepcopy(PLAN)
    content["servers"] = {"ar": {"method": "autoregressive"}}
    content["servers"] |= {name: {"method": "ddtree", "budget": 7} for name in FAILURES}
    content["servers"]["silent"]["start_timeout_s"] = 1
    content["servers"]["greedy"] |= {"device": "cuda", "gpus": 3}
    content["workloads"] = {"short": {"source": "held_out", "prompts": 2, "max_new_tokens": 8}}
    return content | {"concurrency": [1], "max_failed_starts": 1}


def test_failed_servers_are_rows_the_status_tells_and_the_next_run_tries_only_them(bench: Bench) -> None:
    bench.configure(plan())
    for server, (said, _) in FAILURES.items():
        if said:
            bench.fault(f"start.{server}", said)
    bench.fault("info.liar", "always " + json.dumps({"budget": 6}))
    nowhere = {"CUDA_VISIBLE_DEVICES": "", "DDTREE_TEST_TOKEN_S": "0.005"}

    status, output = bench.run("report/ddtree.tex", **nowhere)
    assert status == 1, output
    assert set(bench.cells()) == {"ar/short/c1"}
    with (bench.folder / "results/small/tables/failures.csv").open(newline="") as file:
        rows = {row["server"]: row for row in csv.DictReader(file) if row["scope"] == "server"}
    assert {server: row["category"] for server, row in rows.items()} == {s: c for s, (_, c) in FAILURES.items()}
    source = (bench.folder / "report/ddtree.tex").read_text()
    for server, (said, category) in FAILURES.items():
        assert f"{server}: 1 of 1 cells failed, e.g. {category}: {rows[server]['detail']}" in output
        assert rf"\textbf{{\arm{{{server}}}}}: 1 cell missing" in source
        if said and said != "always sleep":
            assert said.removeprefix("always ") in rows[server]["log_lines"]
    assert not bench.processes()
    assert not bench.leases()

    for path in (bench.folder / "faults").iterdir():
        path.unlink()
    before = bench.cells()
    status, output = bench.run(*(f"results/small/sessions/{server}.json" for server in FAILURES), **nowhere)
    assert status == 1, output
    assert "greedy: 1 of 1 cells failed" in output
    assert set(bench.cells()) == {f"{server}/short/c1" for server in ("ar", *FAILURES) if server != "greedy"}
    assert bench.cells()["ar/short/c1"] == before["ar/short/c1"]
