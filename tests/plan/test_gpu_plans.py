"""The plans for GPUs cannot run here, but everything that they say can be checked."""

from pathlib import Path

import pytest

from ddtree.plan.keys import all_cells
from ddtree.plan.load import load
from ddtree.plan.schema import Plan
from ddtree.servers import launch, sglang_flags

ROOT = Path(__file__).parents[2]
PLANS = {
    "h200": ["config/h200.yaml"],
    "h200-padded": ["config/h200.yaml", "config/overlays/h200-padded.yaml"],
    "ct200": ["config/ct200.yaml"],
}


class Files:
    target, drafter = Path("/models/target"), ROOT / "assets" / "smollm2-135m-dflash"


def read(name: str) -> Plan:
    return load([ROOT / path for path in PLANS[name]], root=ROOT)


@pytest.mark.parametrize("name", PLANS)
def test_every_flag_exists_in_the_release_that_the_plan_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = read(name)
    assert plan.plan == name
    for server_name, server in plan.servers.items():
        known = sglang_flags.recorded(str(server.engine_version))
        monkeypatch.setattr(sglang_flags, "installed", lambda *_, known=known: known)
        words = launch.command(server_name, server, Files(), Path("python"), 18500, "nonce").argv
        assert {word for word in words if word.startswith("--")} <= known


def test_the_padded_plan_differs_from_the_plain_one_in_nothing_but_the_model() -> None:
    plain, padded = read("h200"), read("h200-padded")
    assert {server.model for server in padded.servers.values()} == {"smollm2-135m-padded"}
    assert padded.models["smollm2-135m-padded"].pad
    assert padded.models["smollm2-135m-padded"].target == plain.models["smollm2-135m"].target
    assert all_cells(padded) == all_cells(plain)
    for name, server in plain.servers.items():
        assert padded.servers[name].model_copy(update={"model": server.model}) == server


def test_the_grid_of_contexts_and_concurrency_is_whole() -> None:
    plan = read("h200")
    cells = {
        (plan.workloads[cell.workload].prompt_tokens, cell.concurrency)
        for cell in all_cells(plan)
        if cell.workload.startswith("context-")
    }
    assert cells == {(length, c) for length in (60, 1024, 4096) for c in (1, 8, 32, 64)}


def test_the_large_plan_covers_the_tensor_parallel_sizes_with_every_method() -> None:
    plan = read("ct200")
    assert {(s.method, s.gpus) for s in plan.servers.values()} == {
        (method, gpus) for method in ("autoregressive", "dflash") for gpus in (1, 4, 8)
    }
    assert len([w for w in plan.workloads.values() if w.role == "load"]) == 5
