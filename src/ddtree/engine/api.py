"""What the engine takes and gives: frozen records, free of torch, so that the HTTP side can import them cheaply."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """One engine configuration. None means the method's own default; `Engine.info()` tells what is in force."""

    target: Path
    drafter: Path | None
    method: str  # autoregressive | prompt_lookup | dflash | ddtree
    draft_tokens: int | None = None
    ngram_max: int | None = None
    budget: int | None = None
    topk: int | None = None
    draft_window: int | None = None
    shadow: bool = False
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    max_running_requests: int = 8
    context_length: int = 4096
    seed: int = 0


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: temperature 0 is greedy; `top_p` keeps the smallest set of tokens with that much mass.

    `ignore_eos` makes the answer end at `max_new_tokens` only: `stop_token_ids` are ignored too, as in SGLang.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class GenRequest:
    rid: str
    input_ids: list[int]
    sampling: Sampling


@dataclass(frozen=True)
class Counters:
    """Counters of one request so far, with the meaning of `ddtree.bench.records.Speculation`."""

    verify_steps: int
    first_tokens: int
    histogram: list[int] = field(default_factory=list)
    verified_nodes: int = 0
    shadow_histogram: list[int] | None = None


@dataclass(frozen=True)
class Progress:
    """What one engine step did to one request. `new_ids` includes the stop token, when there is one."""

    rid: str
    new_ids: list[int]
    finish: str | None  # None while running, else stop | length | abort
    counters: Counters | None  # None for autoregressive decoding
