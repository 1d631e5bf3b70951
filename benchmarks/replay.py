"""Offline replay: how many tokens a verify step yields for the chain and for trees of many sizes, greedy.

Drafts depend on the text so far, not on how it was accepted. So the drafter is asked once at every position of the
target's greedy answers, and every chain or tree is walked along them: the numbers of real runs, for any budget,
without running them. The trees are those of the SGLang plugin.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import DRAFTER, held_out_prompts, load_target, parser

from ddtree.engine.api import GenRequest, Sampling, Settings
from ddtree.engine.cache import Span
from ddtree.engine.drafter import Drafter
from ddtree.engine.engine import Engine
from ddtree.engine.target import Target
from ddtree.tree import chain

BUDGETS, TOPKS, MAX_TOPK = (8, 12, 15, 16, 31, 63), (4, 8), 8


@dataclass(frozen=True)
class Drafts:
    """One entry per drafted position, answer by answer; L positions of K candidates each."""

    tokens: np.ndarray  # int64 [P, L, K]
    log_probs: np.ndarray  # float32 [P, L, K]
    known: np.ndarray  # int64 [P, L]: how the answer goes on; -1 after its end
    answer: np.ndarray  # int64 [P]: which answer the position belongs to


def answers(target: Path, prompts: list[list[int]], tokens: int, threads: int) -> list[list[int]]:
    """The target's greedy answers."""
    engine = Engine(Settings(target, DRAFTER, "ddtree", budget=15, threads=threads))
    for i, prompt in enumerate(prompts):
        engine.add(GenRequest(str(i), prompt, Sampling(tokens)))
    found: list[list[int]] = [[] for _ in prompts]
    while engine.has_work:
        for progress in engine.step():
            found[int(progress.rid)] += progress.new_ids
    return found


def draft_everywhere(target: Target, drafter: Drafter, prompts: list[list[int]], replies: list[list[int]]) -> Drafts:
    """Drafts after every token of the answers but the last, as they would be were it the last token committed."""
    depth = drafter.block - 1
    contexts, streams = [], []
    for prompt, reply in zip(prompts, replies, strict=True):
        ids = prompt + reply
        span = Span(target.new_cache(len(ids)), chain(ids[0], ids[1:]), len(ids) - 1)
        features = target.forward([span], drafter.taps)[1]
        assert features is not None
        contexts.append(drafter.new_context(len(ids)))
        drafter.extend(contexts[-1:], [features[: len(prompt)]])
        streams.append(features[len(prompt) :])
    rows: list[tuple[list[list[int]], list[list[float]], list[int], int]] = []
    longest = max(len(reply) for reply in replies) - 1
    for at in range(longest):
        going = [i for i, reply in enumerate(replies) if at < len(reply) - 1]
        there = [contexts[i] for i in going]
        found = drafter.draft(there, [replies[i][at] for i in going], depth, MAX_TOPK)
        for i, candidates in zip(going, found, strict=True):
            following = replies[i][at + 1 : at + 1 + depth]
            rows.append((candidates.tokens, candidates.log_probs, following + [-1] * (depth - len(following)), i))
        drafter.extend(there, [streams[i][at : at + 1] for i in going])
        print(f"\r{at + 1}/{longest} positions drafted", end="", flush=True)
    print()
    tokens, log_probs, known, answer = zip(*sorted(rows, key=lambda row: row[3]), strict=True)
    return Drafts(np.array(tokens), np.array(log_probs, np.float32), np.array(known), np.array(answer))


def tokens_per_step(accepted: np.ndarray, answer: np.ndarray) -> float:
    """Committed tokens per verify step when `accepted` [P] drafts are right at each position."""
    tokens = steps = 0
    for index in np.unique(answer):
        here = accepted[answer == index]
        tokens += len(here)  # one per position: the answer without the token that the prompt's pass gave
        at = 0
        while at < len(here):
            at += int(here[at]) + 1
            steps += 1
    return tokens / steps


def accepted_by_trees(drafts: Drafts, topk: int) -> dict[int, np.ndarray]:
    """Accepted drafts [P] per budget; a smaller tree is the beginning of a larger one."""
    import torch

    from ddtree.sglang_plugin.tree import Trees, build_trees, narrow, reached

    tokens, log_probs, known = (torch.from_numpy(x) for x in (drafts.tokens, drafts.log_probs, drafts.known))
    trees = Trees.empty(len(tokens), max(BUDGETS) + 1, "cpu")
    build_trees(tokens[:, :, :topk], log_probs[:, :, :topk], torch.zeros(len(tokens), dtype=torch.int64), trees)
    lengths = (known >= 0).sum(1, dtype=torch.int32)
    return {budget: reached(narrow(trees, budget + 1), known, lengths).numpy() for budget in BUDGETS}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--tokens", type=int, default=128, help="longest answer")
    arguments.add_argument("--limit", type=int, help="take only so many prompts, spread over the categories")
    arguments.add_argument("--window", type=int, help="the drafter sees so many context tokens (default: all)")
    arguments.add_argument("--drafts", type=Path, help=".npz file: read when it exists, otherwise written")
    args = arguments.parse_args()
    if args.drafts and args.drafts.is_file():
        with np.load(args.drafts) as stored:
            drafts = Drafts(**stored)
    else:
        drafts = _draft(args)
        if args.drafts:
            np.savez_compressed(args.drafts, **vars(drafts))
    hits = drafts.tokens[:, :, 0] == drafts.known
    chain_accepted = np.cumprod(hits, axis=1).sum(1)
    base = tokens_per_step(chain_accepted, drafts.answer)
    print(f"{len(np.unique(drafts.answer))} answers, {len(drafts.known)} positions; tokens per verify step")
    print(f"{'chain':<12}{base:6.2f}")
    for topk in TOPKS:
        for budget, accepted in accepted_by_trees(drafts, topk).items():
            value = tokens_per_step(accepted, drafts.answer)
            print(f"B={budget:<3} K={topk:<4}{value:6.2f}  {value / base - 1:+.1%}")


def _draft(args: argparse.Namespace) -> Drafts:
    prompts = held_out_prompts(args.target, args.limit)
    replies = answers(args.target, prompts, args.tokens, args.threads)
    longest = max(len(p) + len(r) for p, r in zip(prompts, replies, strict=True))
    target = load_target(args, longest + 64)
    return draft_everywhere(target, Drafter(DRAFTER, target, args.window, longest + 64), prompts, replies)


if __name__ == "__main__":
    main()
