"""Our load client against SGLang's own on one running server with the same prompts: do they see the same speed?

The clients take turns (ours, theirs, ours, ...), with `--aiperf` also AIPerf. Each pass warms up with copies of the
first prompt, empties the prefix cache, then keeps `--concurrency` requests open until all first turns of the prompt set
are answered, greedy and without end-of-text. Ratios are ours / theirs with intervals over the rounds; how the other
clients count stands in sglang_serving.py and aiperf_client.py.

    python benchmarks/cross_check.py --url http://127.0.0.1:30000 --prompts results/h200/prompts/m/short.json
        --concurrency 8 --rounds 5 --max-new-tokens 128 --sglang-python python3 --tokenizer models/m/target
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import aiohttp
from agreement import THROUGHPUT, BadResult, Pass, Row, compare, from_run, remarks
from aiperf_client import CAUSES as AIPERF_CAUSES
from aiperf_client import AIPerf, from_aiperf, write_inputs
from pydantic import ValidationError
from sglang_serving import CAUSES, WARMUP_TOKENS, BenchServing, Costs, from_bench_serving, write_rows

from ddtree.bench.client import CellTimeout, flush, measure, warm_up
from ddtree.bench.metrics import run_metrics
from ddtree.bench.records import Conversation, PromptSet, Run
from ddtree.bench.sender import connection
from ddtree.plan.schema import Workload

REST_S = 1.0  # between warm-up and measurement, as in bench_serving
PROBES = 30


def first_turns(path: Path, concurrency: int, limit: int | None = None) -> PromptSet:
    """The file's conversations cut to their first turns; `concurrency` copies of the first one warm up. BadResult for a
    file that is no prompt set."""
    try:
        found = PromptSet.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadResult(f"--prompts {path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise BadResult(f"--prompts {path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    cut = [c.model_copy(update={"turns": c.turns[:1]}) for c in found.conversations][:limit]
    if not cut:
        raise BadResult(f"--prompts {path}: conversations: at least one is needed")
    copies = [Conversation(id=f"warm-up-{i}", category="warm-up", turns=cut[0].turns) for i in range(concurrency)]
    return found.model_copy(update={"conversations": cut, "warmup": copies})


async def warm(url: str, prompts: PromptSet, workload: Workload, concurrency: int) -> None:
    short = workload.model_copy(update={"max_new_tokens": min(workload.max_new_tokens, WARMUP_TOKENS)})
    await warm_up(url, prompts, short, concurrency)
    await asyncio.sleep(REST_S)


async def our_pass(url: str, prompts: PromptSet, workload: Workload, concurrency: int, repeat: int) -> Run:
    await warm(url, prompts, workload, concurrency)
    run = await measure(url, prompts, workload, concurrency, repeat)
    if not run.flushed:
        raise BadResult(f"{url}/flush_cache: the prefix cache was not emptied; is another client at work?")
    return run


async def served_model(url: str) -> str:
    async with connection() as http, http.get(f"{url}/v1/models") as answer:
        return str((await answer.json())["data"][0]["id"])


async def probe(url: str) -> Costs:
    """Median seconds of a new connection (an exchange on a fresh one less one on a kept one) and of /server_info."""

    async def timed(http: aiohttp.ClientSession, path: str) -> float:
        start = time.perf_counter()
        async with http.get(url + path) as answer:
            await answer.read()
        return time.perf_counter() - start

    async def fresh(path: str) -> float:
        async with aiohttp.ClientSession() as http:
            return await timed(http, path)

    async with connection() as http:
        await timed(http, "/v1/models")
        pairs = [(await fresh("/v1/models"), await timed(http, "/v1/models")) for _ in range(PROBES)]
    infos = [await fresh("/server_info") for _ in range(PROBES // 5)]
    return Costs(max(0.0, median(new - kept for new, kept in pairs)), median(infos))


def table(rows: list[Row]) -> str:
    lines = [f"{'':18}{'ours':>10}{'theirs':>10}{'ratio':>8}  {'95 % interval':16}{'corrected':>9}  {'noise':>6}"]
    for row in rows:
        scale, unit = (1.0, "tok/s") if row.metric == THROUGHPUT else (1e3, "ms")
        bounds = f"{row.ratio.low:.3f} .. {row.ratio.high:.3f}"
        lines.append(
            f"{row.metric:18}{row.ours * scale:10.2f}{row.theirs * scale:10.2f}{row.ratio.value:8.3f}  "
            f"{bounds:16}{row.corrected.value:9.3f}  {row.floor:6.1%}  {unit:5}  {row.words}"
        )
    return "\n".join(lines)


def steady_remark(runs: list[Run], concurrency: int) -> str:
    """Ramp-up and ramp-down are in every client's wall time; the report's steady state leaves them out."""
    every = [run_metrics(run, concurrency) for run in runs]
    gains = [m.steady_throughput / m.output_throughput for m in every if m.steady_throughput and m.output_throughput]
    shown = f"{sum(gains) / len(gains) - 1:+.1%} against the whole run" if gains else "never reached"
    return f"throughput of the whole run, ramp-down included (our steady state: {shown})"


def arguments() -> argparse.Namespace:
    def at_least(least: int) -> Callable[[str], int]:
        def count(text: str) -> int:
            if not text.isdecimal() or int(text) < least:
                raise argparse.ArgumentTypeError(f"{text}: must be a number of at least {least}")
            return int(text)

        return count

    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, type=lambda url: url.rstrip("/"), help="of the running server")
    parser.add_argument("--prompts", required=True, type=Path, help="prompt set: results/<plan>/prompts/<model>/*.json")
    parser.add_argument("--limit", type=at_least(1), help="take only the first so many prompts")
    parser.add_argument("--concurrency", type=at_least(1), default=1)
    parser.add_argument("--rounds", type=at_least(2), default=5)
    parser.add_argument("--max-new-tokens", type=at_least(1), default=128)
    parser.add_argument("--sglang-python", required=True, help="interpreter that has SGLang; gets this environment")
    parser.add_argument("--tokenizer", required=True, type=Path, help="Hugging Face folder, for bench_serving")
    parser.add_argument("--aiperf", help="also compare with this AIPerf program")
    parser.add_argument("--timeout-s", type=float, default=1800, help="for one pass of a client")
    parser.add_argument("--json", type=Path, help="also write everything here")
    return parser.parse_args()


@dataclass(frozen=True)
class Other:
    """A client to compare with: `one_pass(round)` measures, `causes` says what it is known to add."""

    name: str
    one_pass: Callable[[int], Pass]
    causes: Mapping[str, str]
    command: list[str]


def bench_serving(args: argparse.Namespace, inputs: list[list[int]], folder: Path) -> Other:
    write_rows(folder / "rows.jsonl", inputs, args.max_new_tokens)
    client = BenchServing(
        python=args.sglang_python,
        url=args.url,
        tokenizer=args.tokenizer.resolve(),
        rows=folder / "rows.jsonl",
        prompts=len(inputs),
        concurrency=args.concurrency,
        timeout_s=args.timeout_s,
    )
    costs = asyncio.run(probe(args.url))

    def one_pass(round_: int) -> Pass:
        result = client.run(folder / f"bench-serving-{round_}.jsonl")
        return from_bench_serving(result, len(inputs), args.concurrency, costs)

    return Other("sglang.bench_serving", one_pass, CAUSES, client.command(folder / "out.jsonl"))


def aiperf(args: argparse.Namespace, prompts: PromptSet, workload: Workload, folder: Path) -> Other:
    inputs, model = [c.turns[0] for c in prompts.conversations], asyncio.run(served_model(args.url))
    write_inputs(folder / "inputs.json", model, inputs, args.max_new_tokens)
    client = AIPerf(
        program=args.aiperf,
        url=args.url,
        model=model,
        tokenizer=args.tokenizer.resolve(),
        inputs=folder / "inputs.json",
        prompts=len(inputs),
        concurrency=args.concurrency,
        timeout_s=args.timeout_s,
    )

    def one_pass(round_: int) -> Pass:
        asyncio.run(warm(args.url, prompts, workload, args.concurrency))
        if not asyncio.run(flush(args.url)):
            raise BadResult(f"{args.url}/flush_cache: the prefix cache was not emptied")
        return from_aiperf(*client.run(folder / f"aiperf-{round_}"), len(inputs), args.concurrency)

    return Other("aiperf", one_pass, AIPERF_CAUSES, client.command(folder / "out"))


def cross_check(args: argparse.Namespace, folder: Path) -> None:
    prompts = first_turns(args.prompts, args.concurrency, args.limit)
    inputs = [c.turns[0] for c in prompts.conversations]
    limits = {"request_timeout_s": args.timeout_s, "cell_timeout_s": args.timeout_s}
    workload = Workload(source=prompts.workload, max_new_tokens=args.max_new_tokens, ignore_eos=True, **limits)
    others = [bench_serving(args, inputs, folder)]
    if args.aiperf:
        others.append(aiperf(args, prompts, workload, folder))
    runs: list[Run] = []
    passes: dict[str, list[Pass]] = {"ddtree.bench": [], **{other.name: [] for other in others}}
    for round_ in range(args.rounds):
        runs.append(asyncio.run(our_pass(args.url, prompts, workload, args.concurrency, round_)))
        passes["ddtree.bench"].append(from_run(runs[-1], args.concurrency))
        for other in others:
            passes[other.name].append(other.one_pass(round_))
        speeds = ", ".join(f"{name} {done[-1].reported[THROUGHPUT]:.1f}" for name, done in passes.items())
        print(f"round {round_ + 1} of {args.rounds}, tok/s: {speeds}", file=sys.stderr)
    ours = passes["ddtree.bench"]
    print(
        f"{len(inputs)} prompts of {prompts.workload}, {args.max_new_tokens} tokens each, "
        f"concurrency {args.concurrency}, {args.rounds} rounds; {steady_remark(runs, args.concurrency)}"
    )
    if any(run.client.distorted for run in runs):
        print("our client's event loop lagged: its numbers may be bent")
    compared: dict[str, object] = {}
    for other in others:
        rows = compare(ours, passes[other.name], other.causes)
        said = remarks(ours, passes[other.name], sum(map(len, inputs)))
        print(f"\nddtree.bench / {other.name}", table(rows), *(f"- {line}" for line in said), sep="\n")
        compared[other.name] = {"rows": [asdict(row) for row in rows], "remarks": said, "command": other.command}
    if args.json:
        kept = {
            "arguments": {name: str(value) for name, value in vars(args).items()},
            "prompts_sha256": prompts.sha256,
            "compared": compared,
            "passes": {name: [asdict(p) for p in done] for name, done in passes.items()},
        }
        args.json.write_text(json.dumps(kept, indent=1))


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        try:
            cross_check(args, Path(folder))
        except (BadResult, CellTimeout) as error:
            sys.exit(f"cross_check: {error}")
        except aiohttp.ClientError as error:
            sys.exit(f"cross_check: --url {args.url}: {error}")


if __name__ == "__main__":
    main()
