"""The whole cross-check against a fake engine, with a stand-in for SGLang's client that writes down what it gets."""

import argparse
import asyncio
import json
from pathlib import Path

import cross_check
import pytest
from agreement import METRICS, BadResult
from fake_engine import FakeEngine, conversation, prompt_set

STAND_IN = """#!/usr/bin/env python3
import json, os, sys
args = dict(zip(sys.argv, sys.argv[1:]))
rows = [json.loads(line) for line in open(args["--dataset-path"])]
n = len(rows)
result = {f"{kind}_{name}_ms": 10.0 for kind in ("mean", "median") for name in ("ttft", "itl", "tpot", "e2e_latency")}
result |= {"completed": n, "duration": 1.0, "output_throughput": 3.0 * n, "output_lens": [3] * n, "ttfts": [0.01] * n,
           "itls": [[0.01, 0.01]] * n, "generated_texts": [""] * n, "errors": [""] * n, "cached_tokens": [0] * n}
json.dump(result, open(args["--output-file"], "w"))
json.dump([sys.argv[1:], rows, os.environ["HF_HUB_OFFLINE"]], open(os.environ["SEEN"], "w"))
"""


@pytest.fixture
def args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    monkeypatch.setattr(cross_check, "REST_S", 0)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.json"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    prompts = prompt_set(conversation("a", [5, 6, 7], [8]), conversation("b", [9]), conversation("c", [4, 4]))
    (tmp_path / "prompts.json").write_text(prompts.model_dump_json())
    return argparse.Namespace(
        url="", prompts=tmp_path / "prompts.json", limit=2, concurrency=2, rounds=2, max_new_tokens=8, timeout_s=30.0,
        sglang_python=str(python), tokenizer=tmp_path, aiperf=None, json=tmp_path / "out.json",
    )  # fmt: skip


async def test_both_clients_get_the_same_prompts_in_turn(
    args: argparse.Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeEngine().serve() as engine:
        args.url = engine.url
        await asyncio.to_thread(cross_check.cross_check, args, tmp_path)
    warmed_and_measured = [[5, 6, 7], [5, 6, 7], [5, 6, 7], [9]]
    assert sorted(body["input_ids"] for body in engine.asked) == sorted(warmed_and_measured * args.rounds)
    assert engine.flushes == args.rounds
    assert all(body["sampling_params"]["ignore_eos"] for body in engine.asked)
    command, rows, offline = json.loads((tmp_path / "seen.json").read_text())
    assert [row["prompt"] for row in rows] == [[5, 6, 7], [9]]
    assert command[command.index("--max-concurrency") + 1] == command[command.index("--warmup-requests") + 1] == "2"
    assert offline == "1"
    shown = capsys.readouterr().out
    assert all(metric in shown for metric in METRICS)
    kept = json.loads(args.json.read_text())
    assert [row["metric"] for row in kept["compared"]["sglang.bench_serving"]["rows"]] == list(METRICS)
    assert {name: len(done) for name, done in kept["passes"].items()} == {"ddtree.bench": 2, "sglang.bench_serving": 2}


async def test_a_cache_that_was_not_emptied_stops_it(args: argparse.Namespace, tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.flush_status = 400
    async with engine.serve():
        args.url = engine.url
        with pytest.raises(BadResult, match="the prefix cache was not emptied"):
            await asyncio.to_thread(cross_check.cross_check, args, tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "workload: Field required"),
        ("nothing", "Invalid JSON"),
        (prompt_set().model_dump_json(), "conversations: at least one"),
    ],
)
def test_a_file_that_is_no_prompt_set_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(text)
    with pytest.raises(BadResult, match=f"--prompts {path}.*{says}"):
        cross_check.first_turns(path, 1)


@pytest.mark.parametrize(("flag", "value"), [("--rounds", "1"), ("--concurrency", "0"), ("--max-new-tokens", "many")])
def test_a_bad_count_is_refused_by_name(
    flag: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = ["--url", "http://h:1", "--prompts", "p", "--sglang-python", "python", "--tokenizer", "t"]
    monkeypatch.setattr("sys.argv", ["cross_check", *needed, flag, value])
    with pytest.raises(SystemExit):
        cross_check.arguments()
    assert f"argument {flag}: {value}: must be a number of at least" in capsys.readouterr().err
