"""Wall time per token over the held-out prompts, relative to autoregressive decoding, one request at a time, greedy.

Every prompt is decoded by all methods in turn before the next one, so that a disturbance of the machine hits them all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from common import DRAFTER, held_out_prompts, parser

from ddtree.engine.api import Counters, GenRequest, Sampling, Settings
from ddtree.engine.engine import Engine

METHODS: dict[str, tuple[str, int | None]] = {
    "autoregressive": ("autoregressive", None),
    "prompt lookup": ("prompt_lookup", None),
    "chain 16": ("dflash", None),
    "DDTree 7": ("ddtree", 7),
    "DDTree 15": ("ddtree", 15),
    "DDTree 31": ("ddtree", 31),
}


@dataclass
class Total:
    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0
    mismatches: int = 0


def generate(engine: Engine, prompt: list[int], tokens: int) -> tuple[list[int], float, Counters | None]:
    """Output ids, seconds after the first token (which all methods make alike), counters."""
    engine.add(GenRequest("0", prompt, Sampling(tokens)))
    first = engine.step()[0]
    ids, counters, start = list(first.new_ids), first.counters, time.perf_counter()
    while engine.has_work:
        progress = engine.step()[0]
        ids += progress.new_ids
        counters = progress.counters
    return ids, time.perf_counter() - start, counters


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--tokens", type=int, default=256, help="longest answer")
    arguments.add_argument("--limit", type=int, help="take only so many prompts, spread over the categories")
    args = arguments.parse_args()
    prompts = held_out_prompts(args.target, args.limit)
    engines = {
        name: Engine(Settings(args.target, DRAFTER, method, budget=budget, threads=args.threads))
        for name, (method, budget) in METHODS.items()
    }
    totals = {name: Total() for name in engines}
    for engine in engines.values():
        generate(engine, prompts[0], 16)
    for prompt in prompts:
        reference: list[int] | None = None
        for name, engine in engines.items():
            ids, seconds, counters = generate(engine, prompt, args.tokens)
            reference = reference or ids
            total = totals[name]
            total.tokens += len(ids) - 1
            total.seconds += seconds
            total.steps += counters.verify_steps if counters else len(ids) - 1
            total.mismatches += ids != reference
    base = totals["autoregressive"].seconds / totals["autoregressive"].tokens
    print(f"{len(prompts)} prompts, {totals['autoregressive'].tokens} tokens, {base * 1e3:.1f} ms per token")
    print(f"{'':16}{'time ratio':>12}{'tokens/step':>14}{'step ratio':>12}{'mismatches':>12}")
    for name, t in totals.items():
        per_token, per_step = t.seconds / t.tokens, t.seconds / t.steps
        print(f"{name:16}{per_token / base:12.3f}{t.tokens / t.steps:14.2f}{per_step / base:12.2f}{t.mismatches:12d}")


if __name__ == "__main__":
    main()
