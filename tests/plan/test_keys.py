"""A cell's key changes with what the result depends on, and with nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plans import changed, checkpoints, write

from ddtree.models.files import ModelFiles
from ddtree.plan.keys import CellId, cells, depends_on, digest, resolved
from ddtree.plan.load import load
from ddtree.plan.schema import Plan
from ddtree.plan.specs import SessionSpec, session_spec, write_session

FILES = ModelFiles(target=Path("/t"), drafter=Path("/d"), target_sha256="t", drafter_sha256="d", tokenizer_sha256="k")


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., Plan]:
    checkpoints(tmp_path)
    return lambda *changes: load([write(tmp_path, changed(*changes))], root=tmp_path)


def key(plan: Plan, server: str = "tree", files: ModelFiles = FILES, prompts: str = "p", lock: str = "l") -> str:
    short = resolved(plan, "short")
    return digest(depends_on(plan.servers[server], short, 4, prompts, files, lock, server == plan.baseline))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("servers/tree/budget", 15),
        ("servers/tree/topk", 4),
        ("servers/tree/draft_window", 64),
        ("servers/tree/context_length", 2048),
        ("servers/tree/threads", 1),
        ("workloads/short/max_new_tokens", 65),
        ("workloads/short/temperature", 0.5),
        ("workloads/short/repeats", 2),
        ("repeats", 2),
    ],
)
def test_what_shapes_the_result_changes_the_key(planned: Callable[..., Plan], where: str, value: Any) -> None:
    assert key(planned((where, value))) != key(planned())


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("title", "Other words"),
        ("servers/ar/threads", 1),
        ("servers/other", {"method": "prompt_lookup"}),
        ("workloads/code/max_new_tokens", 9),
        ("workloads/short/cell_timeout_s", 5),
        ("workloads/short/concurrency", [4]),
        ("servers/tree/start_timeout_s", 5),
        ("cell_attempts", 5),
        ("ports", [19000, 19100]),
    ],
)
def test_what_does_not_shape_the_result_leaves_the_key(planned: Callable[..., Plan], where: str, value: Any) -> None:
    assert key(planned((where, value))) == key(planned())


def test_hashes_of_prompts_models_and_environment_count(planned: Callable[..., Plan]) -> None:
    plan = planned()
    other_drafter = FILES.model_copy(update={"drafter_sha256": "e"})
    moved = FILES.model_copy(update={"target": Path("/elsewhere")})
    known = key(plan)
    assert len({known, key(plan, prompts="q"), key(plan, lock="m"), key(plan, files=other_drafter)}) == 4
    assert key(plan, files=moved) == known
    assert key(plan, "ar", other_drafter) == key(plan, "ar"), "a method without a drafter does not depend on it"


def test_keys_are_16_hex_digits_and_independent_of_order() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert len(digest({})) == 16
    assert int(digest({}), 16) >= 0


def test_quality_workloads_come_last(planned: Callable[..., Plan]) -> None:
    plan = planned(
        ("workloads", {"code": {"source": "human_eval", "role": "quality"}, "short": {"source": "held_out"}})
    )
    assert cells(plan, "ar") == [CellId("ar", w, c) for w in ("short", "code") for c in (1, 4)]


def test_a_spec_file_is_renewed_by_content_or_request_only(planned: Callable[..., Plan], tmp_path: Path) -> None:
    path, spec = tmp_path / "spec.json", session_spec(planned(), "tree")
    write_session(spec, path, request_unix=5.0)
    first = path.stat().st_mtime_ns
    write_session(session_spec(planned(("title", "Other words")), "tree"), path, None)
    assert path.stat().st_mtime_ns == first
    write_session(session_spec(planned(("cell_attempts", 5)), "tree"), path, None)
    assert SessionSpec.model_validate_json(path.read_text()).cell_attempts == 5
    assert SessionSpec.model_validate_json(path.read_text()).requested_unix == 5.0
    write_session(spec, path, request_unix=6.0)
    assert SessionSpec.model_validate_json(path.read_text()).requested_unix == 6.0


def test_cells_are_measured_in_an_order_that_the_seed_shuffles_alike_for_all_servers(
    planned: Callable[..., Plan],
) -> None:
    many = {f"w{i}": {"source": "held_out", "prompts": 2} for i in range(6)}
    many["graded"] = {"source": "human_eval", "prompts": 1, "role": "quality"}
    orders = []
    for seed in range(3):
        plan = planned(("workloads", many), ("seed", seed))
        each = [[cell.name for cell in cells(plan, server)] for server in plan.servers]
        assert all(order == each[0] for order in each)
        assert each[0][-1].startswith("graded/")
        assert sorted(each[0]) == sorted(f"{w}/c{c}" for w in many for c in resolved(plan, w).concurrency or ())
        orders.append(each[0])
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_arrivals_count_by_their_times(planned: Callable[..., Plan], tmp_path: Path) -> None:
    times = tmp_path / "times.json"

    def replayed(text: str) -> str:
        times.write_text(text)
        return key(planned(("workloads/short/arrivals", {"replay": str(times)})))

    count = planned().workloads["short"].prompts
    first, later = replayed(str([float(i) for i in range(count)])), replayed(str([2.0 * i for i in range(count)]))
    assert len({first, later, key(planned())}) == 3
    assert replayed(str([100.0 + i for i in range(count)])) == first
