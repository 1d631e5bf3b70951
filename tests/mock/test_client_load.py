"""The benchmark's two sides, small: the client's records against the mock server's account."""

import argparse
import asyncio
from pathlib import Path

import pytest
from agreement import BadResult
from client_load import both_sides, described, load, mock_server, prompts, run_all

from ddtree.bench.records import ClientHealth, Failure, Request, Run
from ddtree.plan.schema import Workload


def run(*chunks: tuple[float, int], failure: Failure | None = None) -> Run:
    request = Request(
        conversation="a", turn=0, input_tokens=1, sent_s=0, chunks=list(chunks), done_s=9, finish_reason="length",
        failure=failure,
    )  # fmt: skip
    health = ClientHealth(loop_lag_max_s=0, loop_lag_p99_s=0, distorted=False)
    return Run(repeat=0, start_s=0, end_s=9, flushed=True, requests=[request], client=health)


def account(*sent: tuple[float, int]) -> list[dict[str, object]]:
    return [{"rid": "r", "input_tokens": 1, "received_s": 0.0, "sent": list(sent)}]


def test_a_late_client_is_seen_in_rate_and_itl() -> None:
    found = both_sides(run((1.0, 1), (4.0, 5)), account((1.0, 1), (3.0, 5)))
    assert (found.client_rate, found.server_rate) == (5 / 3, 5 / 2)
    assert found.rate_error == pytest.approx(-1 / 3)
    assert (found.client_itl, found.server_itl) == ([0.75] * 4, [0.5] * 4)


def test_tokens_that_one_side_lacks_and_failures_are_refused() -> None:
    with pytest.raises(BadResult, match="the client counted 5 tokens, the server sent 6"):
        both_sides(run((1.0, 1), (4.0, 5)), account((1.0, 1), (3.0, 6)))
    with pytest.raises(BadResult, match=r"1 of 1 requests failed, e\.g\. Timeout late"):
        both_sides(run((1.0, 1), failure=Failure(type="Timeout", detail="late")), account((1.0, 1)))


def test_every_stream_of_a_real_run_is_on_both_sides() -> None:
    workload = Workload(source="load", max_new_tokens=9, ignore_eos=True)
    with mock_server(9, 4, 0.01, 0.02) as url:
        measured, found = asyncio.run(load(url, prompts(40), workload, 20))
    assert len(found.client_itl) == len(found.server_itl) == 40 * 8
    assert "40 requests, 20 at once" in described(measured, found, 20)


STAND_IN = """#!/usr/bin/env python3
import json, sys
args = dict(zip(sys.argv, sys.argv[1:]))
n = len(open(args["--dataset-path"]).readlines())
result = {f"{kind}_{name}_ms": 1e9 for kind in ("mean", "median") for name in ("ttft", "itl", "tpot", "e2e_latency")}
result |= {"completed": n, "duration": 1.0, "output_throughput": 1e-3, "output_lens": [9] * n, "ttfts": [0.01] * n,
           "itls": [[0.01]] * n, "generated_texts": [""] * n, "errors": [""] * n, "cached_tokens": [0] * n}
json.dump(result, open(args["--output-file"], "w"))
"""


def test_another_client_stands_beside_as_ratios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    args = argparse.Namespace(
        concurrency=2, requests=4, tokens=9, max_new_tokens=9, per_step=4, first_s=0.01, step_s=0.01, timeout_s=30.0,
        sglang_python=str(python), tokenizer=tmp_path, aiperf=None,
    )  # fmt: skip
    run_all(args, tmp_path)
    shown = capsys.readouterr().out
    ratios = dict(
        [part.strip() for part in line.rsplit(maxsplit=1)]
        for line in shown.partition("sglang.bench_serving\n")[2].splitlines()[:-1]
    )
    assert float(ratios["output throughput"]) > 1000
    assert float(ratios["TTFT mean"]) == 0
