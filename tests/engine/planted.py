"""Engines with a planted mistake, and the path from their answers to the audit's verdict; for tests only.

The drafts are an oracle's: the target's own next tokens, each the second child of its parent, behind a wrong one. So
acceptance is high whatever the mistake, as with a good drafter, and every accepted path leaves the tree's spine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from engines import Answer, run

from ddtree.bench.records import Audit, Cell, ClientHealth, Request, Run
from ddtree.engine.api import Sampling, Settings
from ddtree.engine.decoders import Decoder
from ddtree.engine.engine import Engine
from ddtree.engine.sequence import Sequence as Running
from ddtree.engine.target import KVCache, Span, Target
from ddtree.quality.lossless import compare
from ddtree.quality.results import Agreement
from ddtree.tree import Tree

DEPTH = 3  # right drafts per step


class SiblingLeak(Target):
    """A node attends to its earlier siblings as well: their keys and values count as the past."""

    def _bias(self, span: Span) -> torch.Tensor | None:
        bias, tree = super()._bias(span), span.tree
        if bias is not None and span.cache.length:
            for node, parent in enumerate(tree.parents):
                siblings = [i for i in range(node) if tree.parents[i] == parent >= 0]
                for row in range(self.config.group):
                    bias[row * len(tree) + node, [span.cache.length + i for i in siblings]] = 0.0
        return bias


class UnmovedRows(Target):
    """The accepted path's length is right, but the first rows of the block are kept: those of its siblings."""

    def new_cache(self, capacity: int) -> KVCache:
        cache = super().new_cache(capacity)
        commit = cache.commit
        cache.commit = lambda path: commit(list(range(len(path))))  # type: ignore[method-assign]
        return cache


class OffByOne(Target):
    """Drafted tokens stand one position too late."""

    def _positions(self, span: Span) -> list[int]:
        late = 1 if span.cache.length else 0
        return [p + late * (depth > 0) for p, depth in zip(super()._positions(span), span.tree.depths, strict=True)]


class Oracle(Decoder):
    width = 2 * DEPTH + 1

    def __init__(self, clean: Engine, vocab: int) -> None:
        self.clean, self.vocab = clean, vocab

    def draft(self, sequences: list[Running]) -> list[Tree]:
        return [self._tree(s.ids) for s in sequences]

    def _tree(self, ids: list[int]) -> Tree:
        right = run(self.clean, [ids], Sampling(max_new_tokens=DEPTH, ignore_eos=True))[0].ids
        tokens, parents, depths = [ids[-1]], [-1], [0]
        for depth, token in enumerate(right, 1):
            parent = len(tokens) - 1
            tokens += [(token + 1) % self.vocab, token]
            parents += [parent, parent]
            depths += [depth, depth]
        return Tree(tuple(tokens), tuple(parents), tuple(depths))


def engine(target: Path, kind: type[Target] = Target, oracle: bool = False) -> Engine:
    """An engine over `target`, computed by `kind`; with an oracle's trees, or decoding token by token."""
    settings = Settings(target=target, drafter=None, method="autoregressive", threads=1, context_length=512)
    made = Engine(settings)
    made._target = kind(target, 512 + 256, torch.float32, torch.device("cpu"))
    if oracle:
        made._decoder = Oracle(Engine(settings), made._target.config.vocab)
    return made


def audited(
    target: Path, arm: Engine, prompts: Sequence[list[int]], sampling: Sampling
) -> tuple[Agreement, list[Answer]]:
    """The pipeline's verdict on the arm's answers, judged by the right engine's; and those answers."""
    right = engine(target)
    expected, answers = run(right, prompts, sampling), run(arm, prompts, sampling)
    audits = [
        Audit(
            conversation=str(i),
            turn=0,
            top=[(a, p, b, q) for (a, p), (b, q) in right.score(prompt + got.ids, len(prompt), 2)],
        )
        for i, (prompt, got) in enumerate(zip(prompts, expected, strict=True))
    ]
    found = compare({"ar": [_cell("ar", expected, audits)], "tree": [_cell("tree", answers, [])]}, "ar")
    (verdict,) = [a for a in found.agreements if (a.server, a.comparison, a.workload) == ("tree", "arm", "all")]
    return verdict, answers


def acceptance_length(answers: Sequence[Answer]) -> float:
    counters = [answer.counters for answer in answers if answer.counters]
    steps = sum(c.verify_steps for c in counters)
    return 1 + sum(d * n for c in counters for d, n in enumerate(c.histogram)) / steps


def _cell(server: str, answers: Sequence[Answer], audits: list[Audit]) -> Cell:
    requests = [
        Request(
            conversation=str(i), turn=0, input_tokens=1, sent_s=0, chunks=[(1.0, len(a.ids))], done_s=1.0,
            finish_reason=a.finish, output_ids=a.ids,
        )
        for i, a in enumerate(answers)
    ]  # fmt: skip
    health = ClientHealth(loop_lag_max_s=0, loop_lag_p99_s=0, distorted=False)
    measured = Run(repeat=0, start_s=0, end_s=1, flushed=True, requests=requests, client=health)
    return Cell(
        key="k", server=server, workload="w", concurrency=1, role="load", started_unix=0, seconds=1, attempt=1,
        effective={"dtype": "float32"}, provenance={}, runs=[measured], audits=audits,
    )  # fmt: skip
