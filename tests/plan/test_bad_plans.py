"""Every mistake in a plan is one line that names file, key and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plans import changed, checkpoints, write

from ddtree.plan.files import PlanError
from ddtree.plan.load import load

MISTAKES: list[tuple[str, Any, str]] = [
    ("servers/tree/budgte", 7, "servers.tree.budgte: unknown key (did you mean budget?); allowed: engine, "),
    ("concurency", [1], "concurency: unknown key (did you mean concurrency?); allowed: plan, title, "),
    ("workloads/short/promts", 3, "workloads.short.promts: unknown key (did you mean prompts?); allowed: source, "),
    ("models/tiny/target/pth", "x", "models.tiny.target.pth: unknown key (did you mean path?); allowed: package, "),
    ("servers/tree/budget", 300, "servers.tree.budget: 300 is not allowed; allowed: a whole number, 1 to 255"),
    ("workloads/short/arrivals", {"rate": 1, "replay": "t"}, "workloads.short.arrivals: give exactly one of rate"),
    (
        "workloads/short/arrivals",
        {"rat": 1},
        "workloads.short.arrivals.rat: unknown key (did you mean rate?); allowed: ",
    ),
    ("workloads/short/arrivals", {"replay": "t"}, "workloads.short.arrivals.replay: "),
    ("servers/tree/budget", "many", "servers.tree.budget: 'many' is not allowed; allowed: a whole number, 1 to 255"),
    ("servers/tree/budget", ..., "servers.tree: method ddtree needs a budget (1 to 255 nodes)"),
    ("servers/ar/budget", 3, "servers.ar: budget belongs to method ddtree, not autoregressive"),
    (
        "servers/ar/method",
        "dflsh",
        "servers.ar.method: 'dflsh' is not allowed; allowed: autoregressive, prompt_lookup,",
    ),
    ("servers/ar/method", ..., "servers.ar.method: missing; allowed: autoregressive, prompt_lookup, dflash, ddtree"),
    ("servers/ar/device", "cuda", "servers.ar: device cuda needs gpus >= 1, device cpu needs gpus: 0"),
    ("servers/ar/model", "tny", "servers.ar.model: no model tny (did you mean tiny?); allowed: tiny"),
    ("servers/ar", None, "servers.ar: None is not allowed; allowed: a mapping of engine, "),
    (
        "servers/Ar_1!",
        {"method": "autoregressive"},
        "servers: the name 'Ar_1!' is not allowed; allowed: a name of small",
    ),
    (
        "servers/chain/draft_tokens",
        8,
        "servers.chain.draft_tokens: 8 is more than the drafter proposes; allowed: 1 to 7",
    ),
    ("server_defaults/topk", 8, "servers.ar: topk belongs to method ddtree, not autoregressive"),
    ("server_defaults/shadwo", True, "server_defaults.shadwo: unknown key (did you mean shadow?)"),
    ("baseline", "arr", "baseline: no server is called arr (did you mean ar?); allowed (method autoregressive): ar"),
    ("baseline", "tree", "baseline: tree has method ddtree; allowed (method autoregressive): ar"),
    ("baseline", ..., "baseline: missing; allowed: a name of small letters"),
    ("chain", "tree", "chain: tree has method ddtree; allowed (method dflash): chain"),
    (
        "models/tiny/drafter",
        None,
        "servers.chain.model: method dflash needs a drafter and tiny has none; allowed: none is",
    ),
    (
        "models/tiny/drafter/path",
        "gone",
        "models.tiny.drafter.path: gone has no config.json; allowed: a checkpoint folder",
    ),
    ("models/tiny/target", {}, "models.tiny.target: give exactly one of package, path, hub (found: none)"),
    (
        "workloads/short/source",
        "heldout",
        "workloads.short.source: no source heldout (did you mean held_out?); allowed: ",
    ),
    ("workloads/short/source", "jsonl", "workloads.short.path: source jsonl needs the file to read"),
    (
        "workloads/short/path",
        "x.jsonl",
        "workloads.short.path: source held_out reads no file; allowed: with source paper, ",
    ),
    (
        "workloads/short/subset",
        "maths",
        "workloads.short.subset: maths does not belong to source held_out; allowed: no subset",
    ),
    ("workloads/short/source", "paper", "workloads.short.subset: source paper needs one; allowed: math500, gsm8k, "),
    ("workloads/short/top_p", 0, "workloads.short.top_p: 0 is not allowed; allowed: a number above 0 up to 1"),
    ("workloads/short/ignore_eos", "maybe", "workloads.short.ignore_eos: 'maybe' is not allowed; allowed: true, false"),
    (
        "workloads/short/prompt_tokens",
        4090,
        "workloads.short.prompt_tokens: 4090 prompt tokens and 1 x 64 new ones exceed the context_length of ar; "
        "allowed: 4096 tokens together",
    ),
    ("workloads", {}, "workloads: empty; allowed: at least one workload"),
    (
        "workloads/short/concurrency",
        [2, 2],
        "workloads.short.concurrency: [2, 2] names a level twice; allowed: each level",
    ),
    ("concurrency", [1, 1], "concurrency: [1, 1] names a level twice; allowed: each level once"),
    (
        "concurrency",
        [1, 9],
        "concurrency: 9 is above max_running_requests of ar, its requests would only queue; allowed: 1",
    ),
    ("concurrency", [], "concurrency: [] is not allowed; allowed: a list, each a whole number, 1 or more"),
    ("concurrency", [0], "concurrency.0: 0 is not allowed; allowed: a whole number, 1 or more"),
    ("ports", [20000, 19000], "ports: [20000, 19000] is not a range; allowed: two ports from 1024 to 65535"),
    ("ports", [20000], "ports.1: missing; allowed: a whole number"),
    ("plan", "../x", "plan: '../x' is not allowed; allowed: a name of small letters"),
    ("repeats", 0, "repeats: 0 is not allowed; allowed: a whole number, 1 or more"),
]


@pytest.mark.parametrize(("key", "value", "line"), MISTAKES, ids=lambda v: str(v)[:40])
def test_a_mistake_is_one_line_with_file_key_and_what_is_allowed(
    tmp_path: Path, key: str, value: Any, line: str
) -> None:
    checkpoints(tmp_path)
    path = write(tmp_path, changed((key, value)))
    with pytest.raises(PlanError) as error:
        load([path], root=tmp_path)
    assert error.value.lines[0].startswith(f"{path}: {line}")
    assert all("\n" not in each for each in error.value.lines)


def test_the_small_plan_itself_is_good(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    plan = load([write(tmp_path, changed())], root=tmp_path)
    assert list(plan.servers) == ["ar", "chain", "tree"]
    assert plan.servers["tree"].model == "tiny"


def test_a_tree_larger_than_block_and_topk_allow_is_refused(tmp_path: Path) -> None:
    checkpoints(tmp_path, block_size=4)
    tree = {"method": "ddtree", "budget": 15, "topk": 2}
    with pytest.raises(PlanError, match=r"15 nodes do not exist at block size 4 and topk 2; allowed: 1 to 14"):
        load([write(tmp_path, changed(("servers/tree", tree)))], root=tmp_path)
    load([write(tmp_path, changed(("servers/tree", tree | {"budget": 14})))], root=tmp_path)


def test_a_mistake_in_server_defaults_is_told_once(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    path = write(tmp_path, changed(("server_defaults/max_running_requests", "lots")))
    with pytest.raises(PlanError) as error:
        load([path], root=tmp_path)
    where = "server_defaults.max_running_requests"
    assert str(error.value) == f"{path}: {where}: 'lots' is not allowed; allowed: a whole number, 1 or more"


def test_several_mistakes_are_several_lines(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    path = write(tmp_path, changed(("repeats", 0), ("servers/tree/budget", 0)))
    with pytest.raises(PlanError) as error:
        load([path], root=tmp_path)
    assert [line.split(": ")[1] for line in error.value.lines] == ["servers.tree.budget", "repeats"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plan: [1\nbaseline: ar\n", "line 2, column 9: expected ',' or ']'"),
        ("plan: a\nservers: {}\nplan: b\n", "line 3, column 1: key plan is given twice"),
        ("servers:\n  a: {method: dflash}\n  a: {method: ddtree}\n", "line 3, column 3: key a is given twice"),
        ("- plan\n", "a plan is a mapping of keys, this file holds a list"),
        ("", "a plan is a mapping of keys, this file holds nothing"),
        ("plan: a\n\tbaseline: b\n", "line 2, column 1: found character '\\t'"),
    ],
)
def test_broken_yaml_is_one_line_with_its_position(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(PlanError) as error:
        load([path], root=tmp_path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none\.yaml: no such plan file"):
        load([tmp_path / "none.yaml"])


def test_an_error_names_the_file_that_gave_the_key(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    base = write(tmp_path, changed())
    over = tmp_path / "over.yaml"
    over.write_text("servers: {tree: {budget: 999}}\n")
    with pytest.raises(PlanError) as error:
        load([base, over], root=tmp_path)
    assert str(error.value).startswith(f"{over}: servers.tree.budget: 999")
    with pytest.raises(PlanError) as error:
        load([base], {"repeats": "x"}, root=tmp_path)
    assert str(error.value).startswith("--config: repeats: 'x' is not allowed")
