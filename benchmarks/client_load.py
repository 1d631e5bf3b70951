"""How many streams can the load client hold? Measured against the mock server's own account of what it sent.

The mock server runs in a process of its own. Its account and our records share the host's monotonic clock, so that the
added ITL is a difference of the two sides of the same streams. With `--bench-serving PYTHON --tokenizer DIR`, and with
`--aiperf PROGRAM` also, the same prompts go through those clients on the same mock server, printed as ratios.

    python benchmarks/client_load.py --concurrency 1024 --tokens 128 --step-s 0.2
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from agreement import THROUGHPUT, BadResult, from_run
from cross_check import Other, aiperf, bench_serving

from ddtree.bench.client import measure
from ddtree.bench.metrics import request_metrics, run_metrics
from ddtree.bench.records import Conversation, PromptSet, Request, Run
from ddtree.bench.sender import connection
from ddtree.plan.schema import Workload

PROMPT_TOKENS = 16


@dataclass(frozen=True)
class Load:
    """Both sides of one run. Rates in tokens per second from the first token to the last, times in seconds."""

    client_rate: float
    server_rate: float
    client_itl: list[float]
    server_itl: list[float]
    client_cores: float  # that the client's process used, on average

    @property
    def rate_error(self) -> float:
        return self.client_rate / self.server_rate - 1


def prompts(count: int) -> PromptSet:
    """Conversations whose first two ids number them, so that no two share a prefix."""
    made = [
        Conversation(
            id=str(i), category="load", turns=[[1000 + i // 1000, 1000 + i % 1000] + [5] * (PROMPT_TOKENS - 2)]
        )
        for i in range(count)
    ]
    return PromptSet(
        workload="load", model="mock", spec_hash="", source="", stop_token_ids=[], warmup=made[:1],
        conversations=made, sha256="",
    )  # fmt: skip


def both_sides(run: Run, account: list[dict[str, Any]], client_cores: float = 0.0) -> Load:
    """Our records and the server's account as records of the same kind, through the same metrics. BadResult for
    failures and for tokens that one side has and the other has not."""
    if failed := [request.failure for request in run.requests if request.failure]:
        raise BadResult(
            f"{len(failed)} of {len(run.requests)} requests failed, e.g. {failed[0].type} {failed[0].detail}"
        )
    truth = [
        Request(
            conversation=one["rid"], turn=0, input_tokens=one["input_tokens"], sent_s=one["received_s"],
            chunks=one["sent"], done_s=one["sent"][-1][0], finish_reason="length",
        )
        for one in account
    ]  # fmt: skip
    ours, theirs = (sorted(r.chunks[-1][1] for r in requests) for requests in (run.requests, truth))
    if ours != theirs:
        raise BadResult(f"the client counted {sum(ours)} tokens, the server sent {sum(theirs)}")
    return Load(_rate(run.requests), _rate(truth), _itl(run.requests), _itl(truth), client_cores)


def _rate(requests: list[Request]) -> float:
    wall = max(r.chunks[-1][0] for r in requests) - min(r.chunks[0][0] for r in requests)
    return sum(r.chunks[-1][1] for r in requests) / wall


def _itl(requests: list[Request]) -> list[float]:
    return [interval for request in requests for interval in request_metrics(request).itl_s]


@contextmanager
def mock_server(tokens: int, per_step: int, first_s: float, step_s: float) -> Iterator[str]:
    """The URL of a truthful mock server in a process of its own."""
    flags = {"--port": 0, "--tokens": tokens, "--per-step": per_step, "--first-s": first_s, "--step-s": step_s}
    command = [sys.executable, "-m", "ddtree.mock", *(str(word) for pair in flags.items() for word in pair)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().split()[0]
        finally:
            process.terminate()


async def load(url: str, prompt_set: PromptSet, workload: Workload, concurrency: int) -> tuple[Run, Load]:
    async with connection() as http:
        await http.delete(f"{url}/truth")
        begin, used = time.monotonic(), time.process_time()
        run = await measure(url, prompt_set, workload, concurrency, 0)
        cores = (time.process_time() - used) / (time.monotonic() - begin)
        account = await (await http.get(f"{url}/truth")).json()
    if account["open"]:
        raise BadResult(f"{account['open']} requests are still open on the server")
    return run, both_sides(run, account["requests"], cores)


def described(run: Run, found: Load, concurrency: int) -> str:
    rows = [f"{'':12}{'client':>10}{'server':>10}{'difference':>12}"]
    rows.append(f"{'tok/s':12}{found.client_rate:10.1f}{found.server_rate:10.1f}{found.rate_error:+12.3%}")
    for name, q in (("ITL p50 ms", 50), ("ITL p90 ms", 90), ("ITL p99 ms", 99)):
        ours, theirs = (float(np.percentile(side, q)) * 1e3 for side in (found.client_itl, found.server_itl))
        rows.append(f"{name:12}{ours:10.3f}{theirs:10.3f}{ours - theirs:+12.3f}")
    lag = run.client
    said = "distorted" if lag.distorted else "sound"
    rows.append(f"{len(run.requests)} requests, {concurrency} at once, client on {found.client_cores:.2f} cores")
    rows.append(f"loop lag p99 {lag.loop_lag_p99_s * 1e3:.1f} ms: {said}")
    return "\n".join(rows)


def others(args: argparse.Namespace, prompt_set: PromptSet, workload: Workload, folder: Path) -> Iterator[Other]:
    if args.sglang_python:
        yield bench_serving(args, [c.turns[0] for c in prompt_set.conversations], folder)
    if args.aiperf:
        yield aiperf(args, prompt_set, workload, folder)


def run_all(args: argparse.Namespace, folder: Path) -> None:
    prompt_set = prompts(args.requests or 2 * args.concurrency)
    limits = {"request_timeout_s": args.timeout_s, "cell_timeout_s": args.timeout_s}
    workload = Workload(source="load", max_new_tokens=args.tokens, ignore_eos=True, **limits)
    with mock_server(args.tokens, args.per_step, args.first_s, args.step_s) as args.url:
        run, found = asyncio.run(load(args.url, prompt_set, workload, args.concurrency))
        print(described(run, found, args.concurrency))
        ours = from_run(run, args.concurrency).reported
        for other in others(args, prompt_set, workload, folder):
            theirs = other.one_pass(0).reported
            shared = [name for name in ours if theirs.get(name)]
            print(f"\nddtree.bench / {other.name}", *(f"{n:18}{ours[n] / theirs[n]:10.3f}" for n in shared), sep="\n")
    steady = run_metrics(run, args.concurrency).steady_throughput
    print(f"{THROUGHPUT} in the steady state: {steady:.1f} tok/s" if steady else "no steady state")


def arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=1024)
    parser.add_argument("--requests", type=int, help="default: twice the concurrency")
    parser.add_argument("--tokens", type=int, default=128, help="of every answer")
    parser.add_argument("--per-step", type=int, default=4, help="tokens of a chunk")
    parser.add_argument("--first-s", type=float, default=1.0)
    parser.add_argument("--step-s", type=float, default=0.5, help="between two chunks of a stream")
    parser.add_argument("--bench-serving", dest="sglang_python", help="interpreter that has SGLang")
    parser.add_argument("--tokenizer", type=Path, help="Hugging Face folder, which the other clients load")
    parser.add_argument("--aiperf", help="AIPerf program")
    parser.add_argument("--timeout-s", type=float, default=300)
    args = parser.parse_args()
    if (args.sglang_python or args.aiperf) and not args.tokenizer:
        parser.error("--bench-serving and --aiperf need --tokenizer")
    args.max_new_tokens = args.tokens
    return args


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_all(args, Path(folder))
        except BadResult as error:
            sys.exit(f"client_load: {error}")


if __name__ == "__main__":
    main()
