"""The greedy comparison on constructed cells, planted errors included."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.bench.records import Audit, Cell, CellStatus, ClientHealth, Failure, Manifest, Reason, Request, Run
from ddtree.cells import write_cell
from ddtree.plan.schema import Plan
from ddtree.quality.lossless import UnknownType, compare, compare_plan
from ddtree.quality.results import Agreement, LosslessResult

ANSWER = [10, 11, 12, 13, 2]


def request(
    ids: list[int],
    conversation: str = "a",
    turn: int = 0,
    failed: bool = False,
    text: str | None = None,
    finish: str = "stop",
) -> Request:
    return Request(
        conversation=conversation,
        turn=turn,
        input_tokens=5,
        sent_s=0.0,
        chunks=[(1.0, len(ids))],
        done_s=1.0,
        finish_reason=finish,
        failure=Failure(type="Timeout") if failed else None,
        output_ids=ids,
        text=" ".join(map(str, ids)) if text is None else text,
    )


def cell(server: str, *repeats: list[Request], concurrency: int = 1, dtype: str = "float32", **more: object) -> Cell:
    health = ClientHealth(loop_lag_max_s=0, loop_lag_p99_s=0, distorted=False)
    runs = [
        Run(repeat=i, start_s=0, end_s=1, flushed=True, requests=requests, client=health)
        for i, requests in enumerate(repeats)
    ]
    fields: dict[str, object] = {
        "key": "k", "server": server, "workload": "short", "concurrency": concurrency, "role": "load",
        "started_unix": 0, "seconds": 1, "attempt": 1, "effective": {"dtype": dtype}, "provenance": {}, "runs": runs,
    }  # fmt: skip
    return Cell.model_validate({**fields, **more})


def audit(ids: list[int], gaps: dict[int, tuple[int, float]], conversation: str = "a", turn: int = 0) -> Audit:
    """Scores of an answer; `gaps` gives the runner-up and its distance at some positions."""
    top = [(token, -0.1, *gaps.get(i, (99, 5.0))) for i, token in enumerate(ids)]
    return Audit(conversation=conversation, turn=turn, top=[(a, p, b, p - gap) for a, p, b, gap in top])


def against(baseline: list[Cell] | Cell, arm: list[Cell] | Cell) -> LosslessResult:
    cells = {"ar": baseline if isinstance(baseline, list) else [baseline]}
    return compare({**cells, "tree": arm if isinstance(arm, list) else [arm]}, "ar")


def agreement(
    result: LosslessResult, server: str = "tree", comparison: str = "arm", workload: str = "all"
) -> Agreement:
    (found,) = [a for a in result.agreements if (a.server, a.comparison, a.workload) == (server, comparison, workload)]
    return found


def test_equal_answers_are_identical():
    result = against(cell("ar", [request(ANSWER)]), cell("tree", [request(ANSWER)]))
    found = agreement(result)
    assert (found.compared, found.identical, found.bug, found.tokens) == (1, 1, 0, 5)
    assert result.divergences == []


@pytest.mark.parametrize(
    ("dtype", "gap", "verdict"),
    [
        ("float32", 0.0, "tie"),
        ("float32", 0.0009, "tie"),
        ("float32", 0.002, "bug"),
        ("bfloat16", 0.125, "tie"),
        ("bfloat16", 0.16, "bug"),
    ],
)
def test_the_gap_decides_between_tie_and_bug(dtype: str, gap: float, verdict: str):
    baseline = cell("ar", [request(ANSWER)], dtype=dtype, audits=[audit(ANSWER, {2: (77, gap)})])
    result = against(baseline, cell("tree", [request([10, 11, 77, 5])], dtype=dtype))
    (found,) = result.divergences
    assert (found.verdict, found.position, found.baseline_token, found.token) == (verdict, 2, 12, 77)
    assert found.gap == pytest.approx(gap)
    assert not found.at_least
    assert getattr(agreement(result), verdict) == 1
    assert agreement(result).largest_gap == pytest.approx(gap)


def test_a_half_precision_arm_is_judged_by_the_coarser_threshold():
    baseline = cell("ar", [request(ANSWER)], audits=[audit(ANSWER, {2: (77, 0.1)})])
    result = against(baseline, cell("tree", [request([10, 11, 77])], dtype="bfloat16"))
    assert result.divergences[0].verdict == "tie"
    assert agreement(result).threshold == 0.15


def test_a_token_outside_the_two_best_is_a_bug_even_in_a_near_tie():
    baseline = cell("ar", [request(ANSWER)], audits=[audit(ANSWER, {1: (77, 1e-6)})])
    (found,) = against(baseline, cell("tree", [request([10, 55, 12])])).divergences
    assert (found.verdict, found.at_least) == ("bug", True)
    assert found.gap == pytest.approx(1e-6)


def test_scores_that_lack_the_baselines_own_token_are_reported():
    baseline = cell("ar", [request(ANSWER)], audits=[audit([10, 50, 12, 13, 2], {1: (77, 1e-6)})])
    (found,) = against(baseline, cell("tree", [request([10, 77, 12])])).divergences
    assert found.verdict == "bug"
    assert "own token" in found.detail


def test_without_an_audit_a_divergence_is_unscored():
    (found,) = against(cell("ar", [request(ANSWER)]), cell("tree", [request([10, 9])])).divergences
    assert (found.verdict, found.gap) == ("unscored", None)


@pytest.mark.parametrize("wrong", [ANSWER[:-1], ANSWER[1:], [*ANSWER, 5], [10, *ANSWER], [10, 11, 13, 2]])
def test_planted_off_by_one_errors_are_bugs(wrong: list[int]):
    baseline = cell("ar", [request(ANSWER)], audits=[audit(ANSWER, {})])
    (found,) = against(baseline, cell("tree", [request(wrong)])).divergences
    assert found.verdict == "bug"


def test_tokens_after_the_end_up_to_the_limit_are_an_overrun_of_the_server():
    """Seen in SGLang 0.5.16: a step that accepts end-of-text and reaches the limit looks at the limit first."""
    baseline = cell("ar", [request(ANSWER, finish="stop")], audits=[audit(ANSWER, {})])
    overrun, endless = (
        against(baseline, cell("tree", [request([*ANSWER, 5], finish=finish)])).divergences[0]
        for finish in ("length", "stop")
    )
    assert (overrun.verdict, overrun.position) == ("overrun", len(ANSWER))
    assert endless.verdict == "bug"


def test_an_answer_that_ends_early_has_no_token_there():
    baseline = cell("ar", [request(ANSWER)], audits=[audit(ANSWER, {})])
    (found,) = against(baseline, cell("tree", [request(ANSWER[:3])])).divergences
    assert (found.position, found.baseline_token, found.token) == (3, 13, None)


def test_equal_tokens_with_another_text_are_a_bug():
    (found,) = against(cell("ar", [request(ANSWER)]), cell("tree", [request(ANSWER, text="?")])).divergences
    assert (found.verdict, found.position) == ("bug", 5)


def test_a_conversation_is_followed_up_to_its_first_divergence():
    def talk(*answers: list[int]) -> list[Request]:
        return [request(ids, turn=turn) for turn, ids in enumerate(answers)]

    audits = [audit([3, 4], {1: (8, 1e-5)}, turn=1)]
    baseline = cell("ar", talk([1, 2], [3, 4], [5, 6], [7]), audits=audits)
    found = agreement(against(baseline, cell("tree", talk([1, 2], [3, 8], [9, 9], [9]))))
    assert (found.compared, found.identical, found.tie, found.after_divergence) == (2, 1, 1, 2)


def test_failed_and_absent_answers_are_unmatched_not_wrong():
    baseline = cell("ar", [request([1], "a"), request([1], "b"), request([1], "c"), request([2], "c", 1)])
    arm = cell("tree", [request([1], "a"), request([], "b", failed=True), request([1], "c")])
    found = agreement(against(baseline, arm))
    assert (found.compared, found.identical, found.unmatched) == (2, 2, 2)


def test_an_arm_without_a_counterpart_at_its_concurrency_is_unmatched():
    found = agreement(against(cell("ar", [request([1])]), cell("tree", [request([1])], concurrency=4)))
    assert (found.compared, found.unmatched) == (0, 1)


def test_an_audit_of_another_concurrency_serves_where_the_context_is_the_same():
    scored = cell("ar", [request(ANSWER)], audits=[audit(ANSWER, {2: (77, 1e-5)})])
    plain = cell("ar", [request([10, 11, 12, 50])], concurrency=4)
    arm = cell("tree", [request([10, 11, 77])], concurrency=4)
    (found,) = [d for d in against([scored, plain], arm).divergences if d.comparison == "arm"]
    assert found.verdict == "tie"


def test_an_audit_of_another_context_does_not_serve():
    scored = cell("ar", [request(ANSWER)], audits=[audit(ANSWER, {2: (77, 1e-5)})])
    plain = cell("ar", [request([10, 50, 12, 13])], concurrency=4)
    arm = cell("tree", [request([10, 50, 77])], concurrency=4)
    (found,) = [d for d in against([scored, plain], arm).divergences if d.comparison == "arm"]
    assert found.verdict == "unscored"


def test_an_audit_after_another_earlier_turn_does_not_serve():
    scored = cell("ar", [request([1]), request([3, 4], turn=1)], audits=[audit([3, 4], {1: (8, 1e-5)}, turn=1)])
    plain = cell("ar", [request([2]), request([3, 4], turn=1)], concurrency=4)
    arm = cell("tree", [request([2]), request([3, 8], turn=1)], concurrency=4)
    (found,) = [d for d in against([scored, plain], arm).divergences if d.comparison == "arm"]
    assert found.verdict == "unscored"


def test_the_baseline_is_compared_with_itself_across_repeats_and_concurrencies():
    audits = [audit(ANSWER, {2: (77, 1e-5), 3: (78, 1e-5)})]
    low = cell("ar", [request(ANSWER)], [request(ANSWER)], [request([10, 11, 77])], audits=audits)
    high = cell("ar", [request([10, 11, 12, 78])], [request(ANSWER)], [request([10, 11, 77])], concurrency=4)
    result = compare({"ar": [high, low]}, "ar")
    repeats, across = agreement(result, "ar", "repeats"), agreement(result, "ar", "concurrency")
    assert (repeats.compared, repeats.identical, repeats.tie) == (4, 1, 3)
    assert (across.compared, across.identical, across.tie) == (3, 2, 1)


def test_every_arm_has_its_own_control_judged_by_the_baselines_scores():
    baseline = cell("ar", [request(ANSWER)], audits=[audit(ANSWER, {2: (77, 1e-5), 3: (78, 4.0)})])
    arm = cell("tree", [request(ANSWER)], [request([10, 11, 77])], [request([10, 11, 12, 78])])
    result = against(baseline, arm)
    control = agreement(result, "tree", "repeats")
    assert (control.compared, control.tie, control.bug) == (2, 1, 1)
    assert {d.baseline_token for d in result.divergences if d.comparison == "repeats"} == {12, 13}


def test_one_repeat_at_one_concurrency_gives_no_control():
    assert compare({"ar": [cell("ar", [request(ANSWER)])]}, "ar").agreements == []


def test_an_unknown_data_type_is_refused():
    with pytest.raises(UnknownType, match="tree: no tie threshold for dtype float8; allowed: float32, bfloat16"):
        against(cell("ar", [request([1])]), cell("tree", [request([1])], dtype="float8"))


answers = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@given(st.lists(st.tuples(answers, answers), min_size=1, max_size=4))
def test_counts_add_up_and_a_divergence_is_the_first_difference(pairs: list[tuple[list[int], list[int]]]):
    baseline = cell("ar", [request(ours, turn=i) for i, (ours, _) in enumerate(pairs)])
    result = against(baseline, cell("tree", [request(theirs, turn=i) for i, (_, theirs) in enumerate(pairs)]))
    found = agreement(result)
    equal = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), len(pairs))
    assert found.identical == equal
    assert found.compared + found.after_divergence + found.unmatched == len(pairs)
    assert found.compared == found.identical + found.tie + found.overrun + found.bug + found.unscored
    for divergence in result.divergences:
        ours, theirs = pairs[divergence.turn]
        assert ours[: divergence.position] == theirs[: divergence.position]
        assert ours[divergence.position :][:1] != theirs[divergence.position :][:1]


def test_a_plan_is_compared_from_its_files(tmp_path: Path):
    servers = {
        "ar": {"model": "m", "method": "autoregressive"},
        "tree": {"model": "m", "method": "ddtree", "budget": 7},
        "other": {"model": "n", "method": "autoregressive"},
    }
    source = {"target": {"hub": "x/y"}, "drafter": {"hub": "x/z"}}
    workloads = {"short": {"source": "held_out"}, "warm": {"source": "held_out", "temperature": 1}}
    plan = Plan.model_validate(
        {"plan": "p", "baseline": "ar", "models": {"m": source, "n": source}, "servers": servers,
         "workloads": workloads, "concurrency": [1, 4]}
    )  # fmt: skip
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    failed = CellStatus(status="failed", key="k", reason=Reason(category="other", detail="x"))
    manifests = []
    for server in servers:
        write_cell(tmp_path / "cells" / server / "short" / "c1.json", cell(server, [request(ANSWER)]))
        manifest = Manifest(
            server=server, started_unix=0, finished_unix=1, starts=[],
            cells={"short/c1": CellStatus(status="ok", key="k"), "short/c4": failed},
        )  # fmt: skip
        manifests.append(tmp_path / "sessions" / f"{server}.json")
        manifests[-1].parent.mkdir(exist_ok=True)
        manifests[-1].write_text(manifest.model_dump_json())
    edited = tmp_path / "cells" / "tree" / "short" / "c1.json"

    compare_plan(tmp_path / "plan.json", manifests, tmp_path / "out" / "lossless.json")
    result = LosslessResult.model_validate_json((tmp_path / "out" / "lossless.json").read_bytes())
    assert agreement(result).identical == 1
    assert {a.server for a in result.agreements} == {"tree"}
    assert result.missing == ["ar/short/c4", "tree/short/c4"]

    edited.write_text(json.dumps({**json.loads(edited.read_text()), "seconds": 2}))
    result = compare_plan(tmp_path / "plan.json", manifests, tmp_path / "out" / "lossless.json")
    assert "tree/short/c1" in result.missing
