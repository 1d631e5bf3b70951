"""DDTREE in a released SGLang on a GPU against autoregressive decoding and DFLASH: answers first, then speed.

    python benchmarks/plugin_gpu.py --target DIR [--drafter DIR] [--python PYTHON] [--out FILE] [--arms NAME...]

It needs nothing but the standard library and the Transformers that SGLang brings. PYTHON must import SGLang and find
the plugin. All servers share one GPU and start at once; they are measured one at a time. For each arm it prints how
many greedy answers differ from the autoregressive ones, the target's log-prob gap between both tokens at every first
difference (`repeat` is the A/A control), drafts accepted per step by depth, ms per step, and tokens per second over
those of the chain.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = ROOT / "src/ddtree/workloads/data/held_out.json"
COMMON = [
    "--host", "127.0.0.1", "--attention-backend", "fa3", "--grammar-backend", "none", "--disable-prefill-cuda-graph",
    "--cuda-graph-max-bs-decode", "32", "--max-running-requests", "48", "--max-total-tokens", "131072",
    "--context-length", "8192", "--random-seed", "1",
]  # fmt: skip
BASELINE, CHAIN = "ar", "dflash"
START_S, TOKENS, PORT = 240.0, 256, 30000


@dataclass(frozen=True)
class Arm:
    algorithm: str | None = None
    rows: int | None = None
    topk: int | None = None
    variables: tuple[tuple[str, str], ...] = ()

    def flags(self, drafter: Path) -> list[str]:
        if self.algorithm is None:
            return []
        made = ["--speculative-algorithm", self.algorithm, "--speculative-draft-model-path", str(drafter)]
        if self.rows:
            made += ["--speculative-num-draft-tokens", str(self.rows), "--speculative-eagle-topk", str(self.topk)]
        return made


ARMS = {
    BASELINE: Arm(),
    "repeat": Arm(),
    CHAIN: Arm("DFLASH"),
    "k1": Arm("DDTREE", 16, 2, (("SGLANG_DDTREE_TOPK", "1"),)),
    "b15-k8": Arm("DDTREE", 16, 8),
    "b31-k8": Arm("DDTREE", 32, 8),
    "b63-k8": Arm("DDTREE", 64, 8),
    "shadow": Arm("DDTREE", 16, 8, (("SGLANG_DDTREE_SHADOW", "1"), ("SGLANG_DDTREE_BUDGET", "31"))),
}


def call(port: int, path: str, body: object | None = None, timeout: float = 300) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        text = answer.read()
    return json.loads(text) if text[:1] in (b"{", b"[") else text


def start(name: str, port: int, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    arm = ARMS[name]
    command = [args.python, "-m", "sglang.launch_server", "--model-path", str(args.target), "--port", str(port)]
    log = args.logs / f"{name}.log"
    return subprocess.Popen(
        [*command, *COMMON, *arm.flags(args.drafter)],
        env=os.environ | dict(arm.variables),
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def ready(port: int, process: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            call(port, "/health_generate", timeout=30)
            return True
        except OSError:
            time.sleep(0.5)
    return False


def prompt_ids(target: Path) -> list[list[int]]:
    """The held-out prompts under the target's chat template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    made = []
    for text in (text for texts in json.loads(PROMPTS.read_text())["prompts"].values() for text in texts):
        chat = [{"role": "user", "content": text}]
        made.append(tokenizer.encode(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)))
    return made


def answer(port: int, ids: list[int]) -> dict[str, Any]:
    sampling = {"max_new_tokens": TOKENS, "temperature": 0.0}
    found: dict[str, Any] = call(port, "/generate", {"input_ids": ids, "sampling_params": sampling})
    return found


def measure(port: int, prompts: list[list[int]], concurrency: int) -> tuple[list[dict[str, Any]], float]:
    """Answers and wall seconds of the second of two passes."""
    for _ in range(2):
        call(port, "/flush_cache", {})
        began = time.perf_counter()
        with ThreadPoolExecutor(concurrency) as pool:
            found = list(pool.map(lambda ids: answer(port, ids), prompts))
        took = time.perf_counter() - began
    return found, took


def gap(port: int, context: list[int], theirs: int, ours: int) -> float:
    """By how much log-prob the baseline prefers its own next token to the other one."""
    body = {
        "input_ids": context, "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True, "token_ids_logprob": [theirs, ours],
    }  # fmt: skip
    first = call(port, "/generate", body)["meta_info"]["output_token_ids_logprobs"][0]
    found = {int(entry[1]): float(entry[0]) for entry in first}
    return found[theirs] - found[ours]


def differences(
    port: int, prompts: list[list[int]], baseline: list[dict[str, Any]], other: list[dict[str, Any]]
) -> list[tuple[int, int, float]]:
    """(prompt, token, gap) of every answer's first difference."""
    found = []
    for i, (one, two) in enumerate(zip(baseline, other, strict=True)):
        a, b = one["output_ids"], two["output_ids"]
        at = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if at is not None:
            found.append((i, at, gap(port, prompts[i] + a[:at], a[at], b[at])))
        elif len(a) != len(b):
            found.append((i, min(len(a), len(b)), float("inf")))
    return found


def histogram(answers: list[dict[str, Any]], key: str) -> list[int]:
    every = [found["meta_info"].get(key) or [] for found in answers]
    return [sum(h[i] for h in every if i < len(h)) for i in range(max(map(len, every), default=0))]


def row(answers: list[dict[str, Any]], seconds: float, concurrency: int) -> dict[str, Any]:
    tokens = sum(found["meta_info"]["completion_tokens"] for found in answers)
    steps = sum(found["meta_info"].get("spec_verify_ct") or 0 for found in answers)
    forwards = steps or tokens
    return {
        "tok_s": tokens / seconds,
        "tokens_per_step": (tokens - len(answers)) / steps if steps else 1.0,
        "ms_per_step": 1000 * seconds * min(concurrency, len(answers)) / forwards,
        "histogram": histogram(answers, "spec_correct_drafts_histogram"),
        "shadow": histogram(answers, "spec_cap_lens_histogram"),
    }


def run(ports: dict[str, int], args: argparse.Namespace) -> dict[str, Any]:
    prompts = prompt_ids(args.target)
    result: dict[str, Any] = {}
    baseline: dict[int, list[dict[str, Any]]] = {}
    chain: dict[int, float] = {}
    for name, port in ports.items():
        result[name] = {"ddtree": call(port, "/server_info")["internal_states"][0].get("ddtree")}
        for concurrency in (1, 8, 32):
            answers, seconds = measure(port, prompts, concurrency)
            found = row(answers, seconds, concurrency)
            if name == BASELINE:
                baseline[concurrency] = answers
            if name == CHAIN:
                chain[concurrency] = found["tok_s"]
            found["over_chain"] = found["tok_s"] / chain[concurrency] if concurrency in chain else None
            found["differences"] = differences(ports[BASELINE], prompts, baseline[concurrency], answers)
            result[name][str(concurrency)] = found
            show(name, concurrency, found, len(prompts))
        args.out.write_text(json.dumps(result, indent=1))
    return result


def show(name: str, concurrency: int, found: dict[str, Any], prompts: int) -> None:
    ratio = f"{found['over_chain']:.3f}x chain" if found["over_chain"] else ""
    equal = prompts - len(found["differences"])
    print(f"{name:8} C={concurrency:<3} {found['tok_s']:8.0f} tok/s {ratio:13} equal {equal}/{prompts}", end=" ")
    print(f"{found['tokens_per_step']:.3f} tokens/step {found['ms_per_step']:.3f} ms/step", flush=True)
    for prompt, token, difference in found["differences"]:
        print(f"    prompt {prompt} parts at token {token}, gap {difference:.4f}")
    for key in ("histogram", "shadow"):
        if found[key]:
            print(f"    {key} {found[key]}", flush=True)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--target", type=Path, required=True, help="Hugging Face folder in bfloat16")
    made.add_argument("--drafter", type=Path, default=ROOT / "assets/smollm2-135m-dflash")
    made.add_argument("--python", default=sys.executable)
    made.add_argument("--out", type=Path, default=Path("plugin_gpu.json"))
    made.add_argument("--logs", type=Path, default=Path("plugin_gpu_logs"))
    made.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    args = made.parse_args()
    args.logs.mkdir(parents=True, exist_ok=True)
    names = [BASELINE, *(name for name in ARMS if name in args.arms and name != BASELINE)]
    ports = {name: PORT + 100 * i for i, name in enumerate(names)}
    processes = {name: start(name, port, args) for name, port in ports.items()}
    try:
        up = {name: port for name, port in ports.items() if ready(port, processes[name])}
        for name in ports.keys() - up.keys():
            tail = (args.logs / f"{name}.log").read_text(errors="replace")[-3000:]
            print(f"{name} did not start:\n{tail}", flush=True)
        if BASELINE in up:
            run(up, args)
    finally:
        for process in processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
