"""AIPerf (0.13), NVIDIA's load client, as a subprocess given exactly our prompts.

It has no route to SGLang's /generate: its requests go to /v1/completions, as bodies written here that hold token ids.
Tokens are counted by the server's `usage`. TTFT and E2E are defined as ours; what it calls inter-token latency is our
TPOT, and its intervals between chunks have no token counts, so that there is no ITL to compare. It has no warm-up that
leaves the measured prompts out of the prefix cache: our client warms up for it. The requests of one slot are
apart by what its scheduler, another process, takes; it reports that as credit-to-start latency.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agreement import THROUGHPUT, BadResult, Pass
from foreign import run_logged

ROUTE = "its requests take the route /v1/completions"
CAUSES = {
    THROUGHPUT: f"its scheduler takes {{credit_s}} per request, and {ROUTE}",
    "TTFT": ROUTE,
    "TPOT": ROUTE,
    "E2E": ROUTE,
}
NAMES = {"TTFT": "time_to_first_token", "TPOT": "inter_token_latency", "E2E": "request_latency"}
OFFLINE_SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # with these it looks up a tokenizer's folder as a name


@dataclass(frozen=True)
class AIPerf:
    program: str
    url: str
    model: str  # as the server calls it
    tokenizer: Path  # folder; it must load one
    inputs: Path
    prompts: int
    concurrency: int
    timeout_s: float

    def command(self, folder: Path) -> list[str]:
        return [
            *(self.program, "profile", "--url", self.url, "--model", self.model, "--tokenizer", str(self.tokenizer)),
            *("--endpoint-type", "completions", "--streaming", "--use-server-token-count"),
            *("--input-file", str(self.inputs), "--custom-dataset-type", "inputs-json"),
            *("--dataset-sampling-strategy", "sequential", "--request-count", str(self.prompts)),
            *("--concurrency", str(min(self.concurrency, self.prompts))),
            *("--no-gpu-telemetry", "--no-server-metrics", "--ui", "none", "--artifact-dir", str(folder)),
        ]

    def run(self, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One pass over all prompts. Returns its summary and its records, one per request."""
        environment = {name: value for name, value in os.environ.items() if name not in OFFLINE_SWITCHES}
        run_logged(self.command(folder), folder.with_suffix(".log"), environment, self.timeout_s)
        try:
            records = (folder / "profile_export.jsonl").read_text().splitlines()
            return json.loads((folder / "profile_export_aiperf.json").read_text()), [json.loads(r) for r in records]
        except OSError as error:
            raise BadResult(f"aiperf: wrote no {error.filename}") from None


def write_inputs(path: Path, model: str, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
    """One session of one request per prompt, in order, as the `inputs-json` data set reads them."""
    common = {"model": model, "max_tokens": max_new_tokens, "temperature": 0, "ignore_eos": True}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    sessions = [
        {"session_id": f"{number:06}", "payloads": [{"prompt": list(ids)} | common | stream]}
        for number, ids in enumerate(prompts)
    ]
    path.write_text(json.dumps({"data": sessions}))


def from_aiperf(summary: dict[str, Any], records: list[dict[str, Any]], prompts: int, concurrency: int) -> Pass:
    """Its files `profile_export_aiperf.json` and `profile_export.jsonl`. BadResult for a failure or a missing key."""
    try:
        return _from_aiperf(summary, records, prompts, concurrency)
    except KeyError as missing:
        raise BadResult(f"aiperf: no key {missing} in its result: another release?") from None


def _from_aiperf(summary: dict[str, Any], records: list[dict[str, Any]], prompts: int, concurrency: int) -> Pass:
    good = [record for record in records if not record.get("error")]
    if len(good) != prompts:
        raise BadResult(f"aiperf: {len(good)} of {prompts} requests succeeded; {summary['error_summary']}")
    good.sort(key=lambda record: str(record["metadata"]["conversation_id"]))
    reported = {THROUGHPUT: float(summary["output_token_throughput"]["avg"])}
    for name, key in NAMES.items():
        reported[f"{name} mean"] = summary[key]["avg"] / 1e3
        reported[f"{name} median"] = summary[key]["p50"] / 1e3
    tokens = [int(record["metrics"]["usage_completion_tokens"]["value"]) for record in good]
    credit_s = summary["credit_to_start_latency"]["avg"] / 1e3
    wall = summary["benchmark_duration"]["avg"] - credit_s * prompts / min(concurrency, prompts)
    corrected = reported | {THROUGHPUT: sum(tokens) / wall}
    return Pass(reported, corrected, tokens, extra_s={"credit_s": credit_s})
