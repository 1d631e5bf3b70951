"""Triton kernels over the vocabulary: every logit is read once, in its own precision.

A program reads a chunk of a row; a second, small kernel merges the chunks.
"""

# No `from __future__ import annotations`: Triton reads the annotations of its kernels as objects.
import torch
import triton
import triton.language as tl

from ddtree.sglang_plugin.tree.layout import Shortlist

CHUNK = 4096
MAX_K = 32  # the kernel searches the chunk once per candidate


def shortlist(logits: torch.Tensor, k: int, first_id: int) -> Shortlist:
    if not 1 <= k <= MAX_K:
        raise ValueError(f"topk is {k} (allowed: 1 to {MAX_K})")
    rows, vocab = logits.shape
    chunks = triton.cdiv(vocab, CHUNK)
    out = _empty(rows, chunks, k, logits.device)
    _shortlist[(rows, chunks)](
        logits, logits.stride(0), vocab, first_id, out.logits, out.ids, out.lse, K=k, CHUNK=CHUNK, num_warps=8
    )
    return out


def merge(parts: Shortlist) -> Shortlist:
    rows, count, k = parts.logits.shape
    out = _empty(rows, 1, k, parts.logits.device)
    values, ids, lse = (t.contiguous() for t in (parts.logits, parts.ids, parts.lse))
    _merge[(rows,)](
        values,
        ids,
        lse,
        out.logits,
        out.ids,
        out.lse,
        COUNT=count,
        K=k,
        PARTS=triton.next_power_of_2(count),
        CANDIDATES=triton.next_power_of_2(count * k),
    )
    return out


def sample_rows(logits: torch.Tensor, temperatures: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    rows, vocab = logits.shape
    chunks = triton.cdiv(vocab, CHUNK)
    best = _empty(rows, chunks, 1, logits.device)
    _sample[(rows, chunks)](
        logits,
        logits.stride(0),
        vocab,
        temperatures.contiguous(),
        seed,
        best.logits,
        best.ids,
        CHUNK=CHUNK,
        num_warps=8,
    )
    return merge(Shortlist(best.logits, best.ids, best.logits[:, :, 0])).ids[:, 0, 0]


def _empty(rows: int, parts: int, k: int, device: torch.device) -> Shortlist:
    values = torch.empty(rows, parts, k, device=device)
    return Shortlist(values, torch.empty_like(values, dtype=torch.int64), torch.empty(rows, parts, device=device))


@triton.jit
def _load_chunk(X, stride, vocab, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(X + tl.program_id(0).to(tl.int64) * stride + column, mask=column < vocab, other=float("-inf"))
    x = x.to(tl.float32)
    return tl.where(x == x, x, float("-inf")), column


@triton.jit
def _log_sum_exp(x):  # type: ignore[no-untyped-def]
    peak = tl.max(x, axis=0)
    base = tl.where(peak == float("-inf"), 0.0, peak)
    total = tl.sum(tl.exp(x - base), axis=0)
    return tl.where(total > 0, base + tl.log(tl.maximum(total, 1e-37)), float("-inf"))


@triton.jit
def _shortlist(X, stride, vocab, first_id, VALUES, IDS, LSE, K: tl.constexpr, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    x, _ = _load_chunk(X, stride, vocab, CHUNK)
    part = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(LSE + part, _log_sum_exp(x))
    slot = tl.arange(0, CHUNK)
    first = (tl.program_id(1) * CHUNK + first_id).to(tl.int64)
    for rank in range(K):
        value, at = tl.max(x, axis=0, return_indices=True)  # of equals the first
        tl.store(VALUES + part * K + rank, value)
        tl.store(IDS + part * K + rank, first + at)
        x = tl.where(slot == at, float("-inf"), x)


@triton.jit
def _merge(  # type: ignore[no-untyped-def]
    VALUES,
    IDS,
    LSE,
    BEST,
    BEST_IDS,
    BEST_LSE,
    COUNT: tl.constexpr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    CANDIDATES: tl.constexpr,
):
    row = tl.program_id(0)
    part, slot = tl.arange(0, PARTS), tl.arange(0, CANDIDATES)
    lse = tl.load(LSE + row * COUNT + part, mask=part < COUNT, other=float("-inf"))
    tl.store(BEST_LSE + row, _log_sum_exp(lse))
    x = tl.load(VALUES + row * COUNT * K + slot, mask=slot < COUNT * K, other=float("-inf"))
    for rank in range(K):
        value, at = tl.max(x, axis=0, return_indices=True)
        tl.store(BEST + row * K + rank, value)
        tl.store(BEST_IDS + row * K + rank, tl.load(IDS + row * COUNT * K + at))
        x = tl.where(slot == at, float("-inf"), x)


@triton.jit
def _log_waits(seed, row, column):  # type: ignore[no-untyped-def]
    """Logarithms of exponential waiting times, one per column."""
    bits, _, _, _ = tl.philox(seed, column, tl.zeros_like(column) + row, 0, 0)
    # Uniform in (0, 1), finest next to 0: there lie the short waits -log(1 - u) that win.
    u = (bits >> 1).to(tl.float32) * 4.656612e-10 + 2.328306e-10
    return tl.log(tl.where(u < 1e-3, u + 0.5 * u * u, -tl.log(tl.maximum(1.0 - u, 5.960464e-8))))


@triton.jit
def _sample(X, stride, vocab, TEMPERATURE, SEED, SCORES, IDS, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    x, column = _load_chunk(X, stride, vocab, CHUNK)
    temperature = tl.load(TEMPERATURE + row)
    if temperature > 0:
        # Of exponential waiting times, each divided by its rate, a token's is the shortest with its probability.
        x = x / temperature - _log_waits(tl.load(SEED), row, column)
    score, at = tl.max(x, axis=0, return_indices=True)
    part = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(SCORES + part, score)
    tl.store(IDS + part, (tl.program_id(1) * CHUNK + at).to(tl.int64))
