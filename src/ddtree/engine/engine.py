"""The engine: continuous batching of requests around one forward pass of the target per step."""

from __future__ import annotations

import os
import zlib
from collections import deque
from dataclasses import asdict

import torch

from ddtree.engine.api import Counters, GenRequest, Progress, Settings
from ddtree.engine.cache import Span
from ddtree.engine.decoders import MAX_WIDTH, check, make_decoder
from ddtree.engine.sampling import chooser
from ddtree.engine.sequence import Sequence
from ddtree.engine.target import Target
from ddtree.tree import chain, walk

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SCORE_ROWS = 64  # rows whose full-vocabulary logits exist at a time while scoring


class Engine:
    """Not thread-safe: one thread adds, aborts and steps."""

    def __init__(self, settings: Settings) -> None:
        """Load target and drafter; ValueError, one line, when the settings or the checkpoints are not usable."""
        check(settings)
        _check_machine(settings)
        self.threads = settings.threads or len(os.sched_getaffinity(0))
        torch.set_num_threads(self.threads)
        device, dtype = torch.device(settings.device), DTYPES[settings.dtype]
        positions = settings.context_length + MAX_WIDTH  # drafts may lie beyond what a request can reach
        self._settings = settings
        self._target = Target(settings.target, positions, dtype, device)
        longest = self._target.config.max_positions
        if settings.context_length > longest:
            raise ValueError(f"context_length {settings.context_length} exceeds the target's {longest}")
        self._decoder = make_decoder(settings, self._target, positions)
        self._waiting: deque[GenRequest] = deque()
        self._running: list[Sequence] = []
        self._aborted: list[Progress] = []
        self._admitted = 0

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running or self._aborted)

    def add(self, request: GenRequest) -> None:
        """Queue a request; ValueError, one line, when it can never be served."""
        sampling, vocab = request.sampling, self._target.config.vocab
        total = len(request.input_ids) + sampling.max_new_tokens
        if not request.input_ids:
            raise ValueError("input_ids is empty")
        if not 0 <= min(request.input_ids) <= max(request.input_ids) < vocab:
            raise ValueError(f"input_ids must lie in 0..{vocab - 1}")
        if sampling.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {sampling.max_new_tokens} (allowed: 1 or more)")
        if not sampling.temperature >= 0:
            raise ValueError(f"temperature is {sampling.temperature} (allowed: 0 or more)")
        if not 0 < sampling.top_p <= 1:
            raise ValueError(f"top_p is {sampling.top_p} (allowed: above 0, up to 1)")
        if total > self._settings.context_length:
            raise ValueError(
                f"{len(request.input_ids)} input tokens and max_new_tokens {sampling.max_new_tokens} "
                f"exceed context_length {self._settings.context_length}"
            )
        if any(request.rid == other.rid for other in (*self._waiting, *(s.request for s in self._running))):
            raise ValueError(f"request id {request.rid} is already in use")
        self._waiting.append(request)

    def abort(self, rid: str) -> None:
        """Drop a request; the next step reports it with finish "abort". An unknown id is ignored."""
        for request in self._waiting:
            if request.rid == rid:
                self._waiting.remove(request)
                self._aborted.append(Progress(rid, [], "abort", None))
                return
        for sequence in self._running:
            if sequence.request.rid == rid:
                self._running.remove(sequence)
                self._aborted.append(Progress(rid, [], "abort", self._counters(sequence)))
                return

    def step(self) -> list[Progress]:
        """One iteration: prompts of newly admitted requests and verifications of the others, in one forward pass."""
        progress, self._aborted = self._aborted, []
        started = self._admit()
        if not started and not self._running:
            return progress
        drafts = self._decoder.draft(self._running) if self._running else []
        spans = [Span(s.cache, tree, 0) for s, tree in zip(self._running, drafts, strict=True)]
        for s in started:
            ids = s.request.input_ids
            spans.append(Span(s.cache, chain(ids[0], ids[1:]), len(ids) - 1))
        batch = [*self._running, *started]
        logits, features = self._target.forward(spans, self._decoder.taps)
        progress += self._accept(batch, spans, logits, features)
        self._running = [s for s in batch if s.finish is None]
        return progress

    @torch.inference_mode()
    def score(self, input_ids: list[int], start: int, top: int) -> list[list[tuple[int, float]]]:
        """Teacher-forced: for each position from `start` on, the `top` best (token, log-prob) given the tokens before.

        ValueError when `start` is not in 1..len(input_ids) or the ids do not fit.
        """
        n, target = len(input_ids), self._target
        if not 1 <= start <= n or n > self._settings.context_length or top < 1:
            raise ValueError(f"score: start {start}, top {top} or {n} input tokens out of range")
        if not 0 <= min(input_ids) <= max(input_ids) < target.config.vocab:
            raise ValueError(f"input_ids must lie in 0..{target.config.vocab - 1}")
        if start == n:
            return []
        span = Span(target.new_cache(n), chain(input_ids[0], input_ids[1:]), start - 1)
        hidden = target.hidden([span])[0][:-1]
        found = []
        for rows in hidden.split(SCORE_ROWS):
            values, index = target.logits(rows).float().log_softmax(-1).topk(min(top, target.config.vocab), -1)
            found += [list(zip(t, p, strict=True)) for t, p in zip(index.tolist(), values.tolist(), strict=True)]
        return found

    def info(self) -> dict[str, object]:
        """Every setting as it is in force, and what a client must know about the model."""
        method_keys: dict[str, object] = dict.fromkeys(("draft_tokens", "ngram_max", "budget", "topk", "draft_window"))
        return {
            **asdict(self._settings),
            **method_keys,
            "shadow": False,
            **self._decoder.effective(),
            "target": str(self._settings.target),
            "drafter": str(self._settings.drafter) if self._settings.drafter else None,
            "threads": self.threads,
            "block_size": self._decoder.block_size,
            "verify_width": self._decoder.width,
            "eos_token_ids": sorted(self._target.eos),
            "vocab_size": self._target.config.vocab,
        }

    def _admit(self) -> list[Sequence]:
        started: list[Sequence] = []
        while self._waiting and len(self._running) + len(started) < self._settings.max_running_requests:
            request = self._waiting.popleft()
            sampling = request.sampling
            capacity = len(request.input_ids) + sampling.max_new_tokens + self._decoder.width
            generator = torch.Generator(self._target.device).manual_seed(self._next_seed())
            stop = frozenset() if sampling.ignore_eos else self._target.eos | sampling.stop_token_ids
            started.append(Sequence(request, self._target.new_cache(capacity), generator, stop))
            self._decoder.start(started[-1])
        return started

    def _next_seed(self) -> int:
        """A seed per request, mixed into 32 bits, of which PyTorch's CPU generator uses no more."""
        self._admitted += 1
        return zlib.crc32(f"{self._settings.seed} {self._admitted}".encode())

    def _accept(
        self, batch: list[Sequence], spans: list[Span], logits: torch.Tensor, features: torch.Tensor | None
    ) -> list[Progress]:
        """Choose tokens from the logits, commit them to the caches, report them."""
        progress, paths = [], []
        blocks = logits.split([len(span.tree) - span.logits_from for span in spans])
        for s, span, rows in zip(batch, spans, blocks, strict=True):
            choose = chooser(rows, s.request.sampling, s.generator)
            if s.prefilled:
                found = walk(span.tree, choose)
                new, path = s.verified(span.tree, found), found.path
            else:
                new, path = s.read_prompt(choose(0)), list(range(len(span.tree)))
            paths.append(path)
            s.cache.commit(path)
            progress.append(Progress(s.request.rid, new, s.finish, self._counters(s)))
        if features is not None:
            self._commit_features(batch, spans, paths, features)
        return progress

    def _counters(self, sequence: Sequence) -> Counters | None:
        return sequence.counters() if self._decoder.speculative else None

    def _commit_features(
        self, batch: list[Sequence], spans: list[Span], paths: list[list[int]], features: torch.Tensor
    ) -> None:
        blocks = features.split([len(span.tree) for span in spans])
        going = [i for i, s in enumerate(batch) if s.finish is None]
        if going:
            kept = [blocks[i] if len(paths[i]) == len(blocks[i]) else blocks[i][paths[i]] for i in going]
            self._decoder.commit([batch[i] for i in going], kept)


def _check_machine(settings: Settings) -> None:
    if settings.dtype not in DTYPES:
        raise ValueError(f"dtype {settings.dtype!r} is unknown (allowed: {', '.join(DTYPES)})")
    if settings.device not in ("cpu", "cuda"):
        raise ValueError(f"device {settings.device!r} is unknown (allowed: cpu, cuda)")
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda: this PyTorch finds no GPU")
    for key in ("threads", "max_running_requests", "context_length"):
        value = getattr(settings, key)
        if value is not None and value < 1:
            raise ValueError(f"{key} is {value} (allowed: 1 or more)")
