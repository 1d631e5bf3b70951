"""AIPerf as another client: what it is given, and its result in our terms."""

import json
from pathlib import Path
from typing import Any

import pytest
from agreement import METRICS, THROUGHPUT, BadResult, Pass, compare, remarks
from aiperf_client import AIPerf, from_aiperf, write_inputs


def aiperf_result() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Two requests, ended in the other order."""
    named = {"time_to_first_token": 150.0, "inter_token_latency": 225.0, "request_latency": 450.0}
    told: dict[str, Any] = {name: {"avg": ms, "p50": ms} for name, ms in named.items()}
    told |= {"output_token_throughput": {"avg": 4.0}, "credit_to_start_latency": {"avg": 20.0}, "error_summary": []}
    told["benchmark_duration"] = {"avg": 1.25}
    ended = [("000001", 2), ("000000", 3)]
    return told, [
        {"metadata": {"conversation_id": name}, "metrics": {"usage_completion_tokens": {"value": n}}}
        for name, n in ended
    ]


def test_aiperf_is_read_in_our_terms() -> None:
    read = from_aiperf(*aiperf_result(), prompts=2, concurrency=1)
    assert read.output_tokens == [3, 2]
    assert read.reported["TPOT mean"] == pytest.approx(0.225)
    assert read.corrected[THROUGHPUT] == pytest.approx(5 / (1.25 - 2 * 0.02))
    assert not any(metric.startswith("ITL") for metric in read.reported)


def test_only_what_both_clients_have_is_compared() -> None:
    theirs = from_aiperf(*aiperf_result(), prompts=2, concurrency=1)
    ours = Pass(dict.fromkeys(METRICS, 1.0), dict.fromkeys(METRICS, 1.0), [3, 2], [2, 2], ["a", "b"], 0)
    rows = compare([ours] * 2, [theirs] * 2, {})
    assert [row.metric for row in rows] == [metric for metric in METRICS if not metric.startswith("ITL")]
    assert len(remarks([ours], [theirs], 10)) == 1  # it tells neither answers nor cache hits


def test_a_failed_request_of_aiperf_is_no_measurement() -> None:
    told, records = aiperf_result()
    records[0]["error"], told["error_summary"] = {"code": 500}, ["500 twice"]
    with pytest.raises(BadResult, match=r"1 of 2 requests succeeded; .*500 twice"):
        from_aiperf(told, records, prompts=2, concurrency=1)


def test_aiperf_gets_the_very_token_ids_and_no_switch_that_hides_the_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_inputs(tmp_path / "inputs.json", "m", [[5, 6, 7], [8]], 16)
    bodies = [session["payloads"][0] for session in json.loads((tmp_path / "inputs.json").read_text())["data"]]
    assert [body["prompt"] for body in bodies] == [[5, 6, 7], [8]]
    assert all((body["max_tokens"], body["ignore_eos"], body["temperature"]) == (16, True, 0) for body in bodies)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    program = tmp_path / "aiperf"
    program.write_text('#!/bin/sh\necho "switch ${HF_HUB_OFFLINE-unset}"; exit 1\n')
    program.chmod(0o755)
    client = AIPerf(str(program), "http://h:1", "m", tmp_path, tmp_path / "inputs.json", 2, 1, timeout_s=20)
    with pytest.raises(BadResult, match="exit status 1; switch unset"):
        client.run(tmp_path / "out")
