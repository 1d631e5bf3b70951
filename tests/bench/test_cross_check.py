"""The comparison of two load clients: their results read, undone to one definition, and put into words."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from agreement import METRICS, THROUGHPUT, BadResult, Pass, compare, explain, from_run, remarks
from sglang_serving import CAUSES, BenchServing, Costs, from_bench_serving, write_rows

from ddtree.bench.records import ClientHealth, Failure, Request, Run
from ddtree.bench.stats import Interval

RECORDED = Path(__file__).with_name("recordings") / "bench_serving-0.5.16.json"
NOTHING = Costs(connection_s=0, server_info_s=0)


def result() -> dict[str, Any]:
    """Two requests, one after the other: tokens at 0.1, 0.2, 0.4 s and [DONE] at 0.5 s; at 0.2, 0.5 s and 0.7 s."""
    figures = {"ttft": 150, "itl": 200, "tpot": 350, "e2e_latency": 600}
    named: dict[str, Any] = {f"{kind}_{name}_ms": ms for name, ms in figures.items() for kind in ("mean", "median")}
    return named | {
        "completed": 2, "duration": 1.25, "output_throughput": 4.0, "output_lens": [3, 2], "ttfts": [0.1, 0.2],
        "itls": [[0.1, 0.2], [0.3]], "generated_texts": ["abc", "de"], "errors": ["", ""], "cached_tokens": [0, 4],
    }  # fmt: skip


def run(*chunks: list[tuple[float, int]], failure: Failure | None = None) -> Run:
    """Requests one after the other, each with its chunks' times after its start."""
    requests, start = [], 0.0
    for number, own in enumerate(chunks):
        arrivals = [(start + at, tokens) for at, tokens in own]
        done = arrivals[-1][0]
        times = {"sent_s": start, "chunks": arrivals, "done_s": done}
        requests.append(
            Request(conversation=str(number), turn=0, input_tokens=4, finish_reason="length", failure=failure, **times)
        )
        start = done
    health = ClientHealth(loop_lag_max_s=0, loop_lag_p99_s=0, distorted=False)
    return Run(repeat=0, start_s=0, end_s=start, flushed=True, requests=requests, client=health)


def a_pass(scale: float = 1.0, corrected: float | None = None, **changed: Any) -> Pass:
    """All metrics have the value `scale`."""
    both = [dict.fromkeys(METRICS, value) for value in (scale, corrected or scale)]
    return dataclasses.replace(
        Pass(*both, output_tokens=[3, 2], chunks=[2, 2], texts=["a", "b"], cached_tokens=0), **changed
    )


def test_the_end_of_the_stream_does_not_count_after_correction() -> None:
    read = from_bench_serving(result(), 2, 1, NOTHING)
    assert read.reported["E2E mean"] == 0.6
    assert read.corrected["E2E mean"] == pytest.approx(0.45)
    assert read.corrected["TPOT mean"] == pytest.approx((0.15 + 0.3) / 2)
    assert read.extra_s["done_s"] == pytest.approx(0.15)


def test_the_same_arrivals_give_both_clients_the_same_corrected_figures() -> None:
    ours = from_run(run([(0.1, 1), (0.2, 2), (0.4, 3)], [(0.2, 1), (0.5, 2)]), 1)
    theirs = from_bench_serving(result() | {"duration": 0.9}, 2, 1, NOTHING)
    assert theirs.corrected == pytest.approx(ours.corrected)


def test_measured_costs_are_taken_from_the_latencies_and_once_per_turn_from_the_wall_time() -> None:
    costs = Costs(connection_s=0.02, server_info_s=0.05)
    one, two = (from_bench_serving(result(), 2, concurrency, costs) for concurrency in (1, 2))
    assert one.corrected["TTFT mean"] == pytest.approx(0.13)
    assert one.corrected["E2E mean"] == pytest.approx(0.43)
    assert one.corrected[THROUGHPUT] == pytest.approx(5 / (1.25 - 0.05 - 2 * 0.02))
    assert two.corrected[THROUGHPUT] == pytest.approx(5 / (1.25 - 0.05 - 0.02))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"completed": 1, "errors": ["", "Traceback\nConnectionResetError: gone\n"]},
            "1 of 2.*ConnectionResetError: gone",
        ),
        ({"ttfts": [0.1, 0.0]}, "without text"),
        ({"itls": [[], []]}, "nothing observed for ITL, TPOT"),
    ],
)
def test_a_result_that_cannot_be_compared_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(BadResult, match=f"(?s){says}"):
        from_bench_serving(result() | changed, 2, 1, NOTHING)


def test_a_key_that_another_release_lacks_is_named() -> None:
    told = result()
    del told["cached_tokens"]
    with pytest.raises(BadResult, match="'cached_tokens'"):
        from_bench_serving(told, 2, 1, NOTHING)


def test_a_failed_request_of_ours_is_no_measurement() -> None:
    with pytest.raises(BadResult, match="1 of 1 requests failed; Timeout 3 tokens"):
        from_run(run([(0.1, 1)], failure=Failure(type="Timeout", detail="3 tokens")), 1)


def test_equal_clients_agree_on_every_metric() -> None:
    rows = compare([a_pass()] * 3, [a_pass()] * 3, {})
    assert [row.metric for row in rows] == list(METRICS)
    assert {row.words for row in rows} == {"agrees"}


@pytest.mark.parametrize("swap", [False, True])
def test_ratios_are_ours_over_theirs_and_noise_is_a_client_over_itself(swap: bool) -> None:
    one, two = [a_pass(2.0), a_pass(2.2)], [a_pass(1.0), a_pass(1.0)]
    row = compare(two, one, {})[0] if swap else compare(one, two, {})[0]
    assert row.ratio.value == pytest.approx(1 / 2.1 if swap else 2.1)
    assert row.floor == pytest.approx(0.1)


def test_a_difference_that_the_correction_removes_is_explained_with_its_size() -> None:
    added = {"connection_s": 0.0004, "server_info_s": 0.005, "done_s": 0.003}
    rows = compare([a_pass()] * 2, [a_pass(1.05, corrected=1.0, extra_s=added)] * 2, CAUSES)
    words = {row.metric: row.words for row in rows}
    assert words["TTFT mean"].startswith("explained")
    assert "0.40 ms" in words["TTFT mean"]
    assert "[DONE] (3.00 ms)" in words["TPOT median"]
    assert "/server_info (5.00 ms)" in words[THROUGHPUT]


def test_intervals_between_tokens_have_no_excuse() -> None:
    rows = compare([a_pass()] * 2, [a_pass(1.05)] * 2, {"TTFT": "it waits"})
    words = {row.metric: row.words for row in rows}
    assert words["ITL mean"] == "NOT EXPLAINED"
    assert words["TTFT mean"] == "NOT EXPLAINED; it waits, which leaves -4.8%"


def around(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half, 5)


@pytest.mark.parametrize(
    ("ratio", "corrected", "floor", "says"),
    [
        (around(1.005, 0.003), around(1.2, 0), 0.0, "agrees"),
        (around(1.005, 0.02), around(1.005, 0.02), 0.0, "not settled"),
        (around(1.05, 0.01), around(0.995, 0.01), 0.0, "explained: it waits"),
        (
            around(1.05, 0.06),
            around(1.03, 0.06),
            0.02,
            "not told from noise: rounds of one client differ by up to 2.0%",
        ),
        (around(1.05, 0.01), around(1.03, 0.01), 0.04, "not told from noise"),
        (around(1.05, 0.01), around(1.03, 0.01), 0.01, "NOT EXPLAINED; it waits, which leaves +3.0%"),
    ],
)
def test_a_difference_in_words(ratio: Interval, corrected: Interval, floor: float, says: str) -> None:
    assert explain(ratio, corrected, floor, "it waits").startswith(says)


def test_counting_chunks_as_tokens_is_told() -> None:
    assert "same for every request" in remarks([a_pass()], [a_pass()], 10)[0]
    said = remarks([a_pass()], [a_pass(output_tokens=[2, 2])], 10)[0]
    assert said.startswith("DIFFERENT output tokens: ours 5")
    assert "counts chunks as tokens" in said
    assert "chunks" not in remarks([a_pass()], [a_pass(output_tokens=[3, 3])], 10)[0]


def test_answers_and_cache_hits_are_compared() -> None:
    _, answers, cache = remarks([a_pass()], [a_pass(texts=["a", "c"], cached_tokens=5)], 10)
    assert answers == "1 of 2 answers are equal"
    assert cache == "DIFFERENT prefix cache hits: 0.0% of the prompt tokens ours, 50.0% theirs"


def test_a_recorded_result_is_read_whole() -> None:
    told = json.loads(RECORDED.read_text())
    read = from_bench_serving(told, told["completed"], told["max_concurrency"], NOTHING)
    assert sum(read.output_tokens) == told["total_output_tokens"]
    assert 0 < read.extra_s["done_s"] < read.reported["E2E mean"]
    for metric in ("TTFT mean", "TTFT median", "ITL mean", "ITL median"):  # what the details and the summary both tell
        assert read.corrected[metric] == pytest.approx(read.reported[metric])
    assert all(math.isfinite(value) and value > 0 for value in read.corrected.values())


def test_rows_hold_the_very_token_ids(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [[5, 6, 7], [8]], 16)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["prompt"] for row in rows] == [[5, 6, 7], [8]]
    assert [(row["prompt_len"], row["output_len"]) for row in rows] == [(3, 16), (1, 16)]


def serving(tmp_path: Path, script: str) -> BenchServing:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return BenchServing(str(python), "http://h:1", tmp_path, tmp_path / "rows.jsonl", 2, 1, timeout_s=20)


def test_its_last_words_tell_why_there_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(BadResult, match="exit status 3; ModuleNotFoundError: sglang"):
        serving(tmp_path, "echo ModuleNotFoundError: sglang >&2; exit 3").run(tmp_path / "out.jsonl")


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    bench = dataclasses.replace(serving(tmp_path, ""), python="/nowhere/python")
    with pytest.raises(BadResult, match="/nowhere/python: No such file"):
        bench.run(tmp_path / "out.jsonl")
