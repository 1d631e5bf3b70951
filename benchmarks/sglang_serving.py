"""SGLang's own load client, `python -m sglang.bench_serving`, as a subprocess given exactly our prompts.

Its data set `autobench` takes token ids, so that nothing is decoded and encoded again on the way.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agreement import BadResult

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
        with open(output.with_suffix(".log"), "w+") as log:
            try:
                done = subprocess.run(
                    self.command(output),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**OFFLINE, **os.environ},
                    timeout=self.timeout_s,
                )
            except OSError as error:
                raise BadResult(f"--sglang-python {self.python}: {error.strerror}") from None
            except subprocess.TimeoutExpired:
                raise BadResult(f"sglang.bench_serving: no result within {self.timeout_s:g} s") from None
            log.seek(0)
            words = log.read().strip().splitlines()
        if done.returncode or not output.exists():
            raise BadResult(
                f"sglang.bench_serving: exit status {done.returncode}; {words[-1] if words else 'no output'}"
            )
        return json.loads(output.read_text())


def write_rows(path: Path, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
    """One line per prompt, in order, as the `autobench` data set reads them."""
    rows = [{"prompt": list(ids), "prompt_len": len(ids), "output_len": max_new_tokens} for ids in prompts]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
