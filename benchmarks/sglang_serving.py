"""SGLang's own load client, `python -m sglang.bench_serving`, as a subprocess given exactly our prompts.

Its data set `autobench` takes token ids, so that nothing is decoded and encoded again on the way. How it (0.5.16,
`--backend sglang`) differs from ddtree.bench, read in its source: its E2E, and with it its TPOT, ends with `[DONE]`
instead of the last token; its wall time ends after a call of /server_info; it opens a new connection for every request,
within the TTFT. Token counts (`meta_info.completion_tokens`), ITL (a chunk of n tokens is n intervals) and the closed
loop are the same. Its per-request details undo the first exactly; the other two are measured (`Costs`) and subtracted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from agreement import LATENCIES, THROUGHPUT, BadResult, Pass, table
from foreign import run_logged

from ddtree.bench.metrics import summary

WARMUP_TOKENS = 32  # bench_serving's warm-up answers are at most that long
# As `python -m sglang.bench_serving`, also where the package `datasets` is missing, which only other data sets use.
LAUNCH = """
import importlib.machinery, importlib.util, runpy, sys, types
if importlib.util.find_spec("datasets") is None:
    stand_in = sys.modules["datasets"] = types.ModuleType("datasets")
    stand_in.__spec__, stand_in.load_dataset = importlib.machinery.ModuleSpec("datasets", None), None
runpy.run_module("sglang.bench_serving", run_name="__main__", alter_sys=True)
"""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True)
class Costs:
    """Seconds that sglang.bench_serving adds and ddtree.bench does not."""

    connection_s: float  # of a new connection, per request
    server_info_s: float  # of one call of /server_info, per run


CAUSES = {
    THROUGHPUT: "its wall time includes new connections ({connection_s} each) and /server_info ({server_info_s})",
    "TTFT": "it includes a new connection ({connection_s})",
    "TPOT": "it includes the wait for [DONE] ({done_s})",
    "E2E": "it includes a new connection ({connection_s}) and the wait for [DONE] ({done_s})",
}


@dataclass(frozen=True)
class BenchServing:
    python: str  # an interpreter that has SGLang
    url: str
    tokenizer: Path  # folder; used for its print-out only
    rows: Path
    prompts: int
    concurrency: int
    timeout_s: float

    def command(self, output: Path) -> list[str]:
        return [
            *(self.python, "-c", LAUNCH, "--backend", "sglang", "--base-url", self.url),
            *("--model", str(self.tokenizer), "--tokenizer", str(self.tokenizer)),
            *("--dataset-name", "autobench", "--dataset-path", str(self.rows), "--num-prompts", str(self.prompts)),
            *("--request-rate", "inf", "--max-concurrency", str(self.concurrency), "--temperature", "0"),
            *("--warmup-requests", str(self.concurrency), "--flush-cache", "--cache-report", "--disable-tqdm"),
            *("--output-details", "--output-file", str(output)),
        ]

    def run(self, output: Path) -> dict[str, object]:
        """One pass: warm-up with copies of the first prompt, flush, one second of rest, all prompts. Returns the line
        that it wrote to `output`; BadResult with its last words when it wrote none."""
        run_logged(self.command(output), output.with_suffix(".log"), {**OFFLINE, **os.environ}, self.timeout_s)
        if not output.exists():
            raise BadResult(f"sglang.bench_serving: wrote no {output.name}")
        return json.loads(output.read_text())


def write_rows(path: Path, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
    """One line per prompt, in order, as the `autobench` data set reads them."""
    rows = [{"prompt": list(ids), "prompt_len": len(ids), "output_len": max_new_tokens} for ids in prompts]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def from_bench_serving(result: Mapping[str, object], prompts: int, concurrency: int, costs: Costs) -> Pass:
    """A line of `--output-file` with `--output-details --cache-report`. BadResult names a missing key or a failure."""
    try:
        return _from_bench_serving(dict(result), prompts, concurrency, costs)
    except KeyError as missing:
        raise BadResult(f"sglang.bench_serving: no key {missing} in its result: another release?") from None


def _from_bench_serving(result: dict[str, Any], prompts: int, concurrency: int, costs: Costs) -> Pass:
    if result["completed"] != prompts:
        said = next((error.strip().splitlines()[-1] for error in result["errors"] if error.strip()), "no error given")
        raise BadResult(f"sglang.bench_serving: {result['completed']} of {prompts} requests succeeded; {said}")
    if not all(result["ttfts"]):
        raise BadResult("sglang.bench_serving: a request without text, whose tokens it counts as asked for")
    reported = {THROUGHPUT: float(result["output_throughput"])}
    for name in LATENCIES:
        key = "e2e_latency" if name == "E2E" else name.lower()
        for kind in ("mean", "median"):
            reported[f"{name} {kind}"] = result[f"{kind}_{key}_ms"] / 1e3
    ttfts = np.array(result["ttfts"], dtype=float)
    decodes = np.array([sum(intervals) for intervals in result["itls"]])
    tokens: list[int] = result["output_lens"]
    wall = result["duration"] - costs.server_info_s - costs.connection_s * prompts / min(concurrency, prompts)
    corrected = table(
        sum(tokens) / wall,
        {
            "TTFT": summary(ttfts - costs.connection_s),
            "ITL": summary(interval for intervals in result["itls"] for interval in intervals),
            "TPOT": summary(d / (n - 1) for d, n in zip(decodes, tokens, strict=True) if d > 0),
            "E2E": summary(ttfts + decodes - costs.connection_s),
        },
    )
    return Pass(
        reported=reported,
        corrected=corrected,
        output_tokens=tokens,
        texts=result["generated_texts"],
        cached_tokens=sum(result["cached_tokens"]),
        extra_s=asdict(costs) | {"done_s": reported["E2E mean"] - float((ttfts + decodes).mean())},
    )
