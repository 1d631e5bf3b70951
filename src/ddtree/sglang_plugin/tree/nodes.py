"""Triton kernels over the nodes of a tree: building, masks, walks. A tree fits into one warp's registers."""

# No `from __future__ import annotations`: Triton reads the annotations of its kernels as objects.
import torch
import triton
import triton.language as tl

from ddtree.sglang_plugin.tree.layout import MAX_NODES, Trees, Walks


def build_trees(tokens: torch.Tensor, log_probs: torch.Tensor, roots: torch.Tensor, out: Trees) -> None:
    """See `reference.build_trees` for why one pending child per node is exact."""
    requests, depth, k = log_probs.shape
    if max(depth, k) >= 1024 or out.nodes > MAX_NODES:
        raise ValueError(f"depth {depth}, topk {k}, {out.nodes} nodes (allowed: 1023, 1023, {MAX_NODES})")
    _build[(requests,)](
        tokens.contiguous(),
        log_probs.contiguous(),
        roots.contiguous(),
        out.tokens,
        out.parents,
        out.depths,
        out.first_child,
        out.next_sibling,
        L=depth,
        K=k,
        N=out.nodes,
        SLOTS=triton.next_power_of_2(out.nodes),
        num_warps=1,
    )


def write_mask(trees: Trees, seq_lens: torch.Tensor | None, mask: torch.Tensor) -> None:
    requests, nodes = trees.parents.shape
    _mask[(requests, nodes)](
        trees.parents,
        trees.parents if seq_lens is None else seq_lens.contiguous(),
        mask.view(torch.uint8),
        FULL=seq_lens is not None,
        N=nodes,
        SLOTS=triton.next_power_of_2(nodes),
        REQUESTS=max(64, triton.next_power_of_2(requests)),  # one compilation for all small batches
        num_warps=1,
    )


def walk(trees: Trees, choices: torch.Tensor, out: Walks) -> None:
    requests, nodes = trees.parents.shape
    _walk[(requests,)](
        trees.tokens,
        trees.parents,
        trees.depths,
        choices.contiguous(),
        out.nodes,
        out.tokens,
        out.lengths,
        out.bonus,
        N=nodes,
        SLOTS=triton.next_power_of_2(nodes),
        D=out.nodes.shape[1],
        DEPTHS=triton.next_power_of_2(out.nodes.shape[1]),
        num_warps=1,
    )


def reached(trees: Trees, known: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    requests, nodes = trees.parents.shape
    out = torch.empty(requests, dtype=torch.int32, device=known.device)
    _reached[(requests,)](
        trees.tokens,
        trees.parents,
        trees.depths,
        known.contiguous(),
        lengths.contiguous(),
        out,
        M=known.shape[1],
        N=nodes,
        SLOTS=triton.next_power_of_2(nodes),
        num_warps=1,
    )
    return out


@triton.jit
def _build(  # type: ignore[no-untyped-def]
    TOKENS,
    LOG_PROBS,
    ROOTS,
    TOKEN,
    PARENT,
    DEPTH,
    CHILD,
    SIBLING,
    L: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    SLOTS: tl.constexpr,
):
    request = tl.program_id(0)
    tokens, log_probs, out = TOKENS + request * L * K, LOG_PROBS + request * L * K, request * N
    slot = tl.arange(0, SLOTS)
    root = tl.load(ROOTS + request)
    tl.store(TOKEN + out, root)
    tl.store(PARENT + out, 0)
    tl.store(DEPTH + out, 0)
    score = tl.zeros((SLOTS,), tl.float32)  # of the node's prefix
    pending = tl.where(slot == 0, tl.load(log_probs), float("-inf"))  # score of the node's next child
    state = tl.zeros((SLOTS,), tl.int32)  # depth << 20 | rank of the next child << 10 | child taken last, 0: none
    child, sibling = tl.zeros((SLOTS,), tl.int32) - 1, tl.zeros((SLOTS,), tl.int32) - 1
    for n in range(1, N):
        best, parent = tl.max(pending, axis=0, return_indices=True)
        live = best > float("-inf")
        hit = slot == parent
        packed = tl.sum(tl.where(hit, state, 0), axis=0)
        base = tl.sum(tl.where(hit, score, 0.0), axis=0)
        depth, rank, last = packed >> 20, (packed >> 10) & 1023, packed & 1023
        token = tl.load(tokens + depth * K + rank, mask=live, other=0)
        tl.store(TOKEN + out + n, tl.where(live, token, root))
        tl.store(PARENT + out + n, tl.where(live, parent, 0))
        tl.store(DEPTH + out + n, tl.where(live, depth + 1, 0))
        child = tl.where(slot == tl.where(live & (last == 0), parent, -1), n, child)
        sibling = tl.where(slot == tl.where(live & (last != 0), last, -1), n, sibling)
        more, deeper = live & (rank + 1 < K), live & (depth + 1 < L)
        beside = tl.load(log_probs + depth * K + rank + 1, mask=more, other=0.0)
        below = tl.load(log_probs + (depth + 1) * K, mask=deeper, other=0.0)
        pending = tl.where(hit, tl.where(more, base + beside, float("-inf")), pending)
        state = tl.where(hit, (depth << 20) | ((rank + 1) << 10) | n, state)
        new = slot == n
        pending = tl.where(new, tl.where(deeper, best + below, float("-inf")), pending)
        state = tl.where(new, (depth + 1) << 20, state)
        score = tl.where(new, best, score)
    tl.store(CHILD + out + slot, child.to(tl.int64), mask=slot < N)
    tl.store(SIBLING + out + slot, sibling.to(tl.int64), mask=slot < N)


@triton.jit
def _mask(  # type: ignore[no-untyped-def]
    PARENT,
    SEQ_LENS,
    MASK,
    FULL: tl.constexpr,
    N: tl.constexpr,
    SLOTS: tl.constexpr,
    REQUESTS: tl.constexpr,
):
    request, node = tl.program_id(0), tl.program_id(1)
    start, prefix = request.to(tl.int64) * N * N, request.to(tl.int64) * 0
    if FULL:
        before = tl.arange(0, REQUESTS)
        lengths = tl.load(SEQ_LENS + before, mask=before < request, other=0).to(tl.int64)
        start += N * tl.sum(lengths, axis=0)
        prefix = tl.load(SEQ_LENS + request).to(tl.int64)
    slot = tl.arange(0, SLOTS)
    seen = (slot == node) | (slot == 0)
    above = node
    while above > 0:
        above = tl.load(PARENT + request * N + above)
        seen = seen | (slot == above)
    tl.store(MASK + start + node * (prefix + N) + prefix + slot, seen.to(tl.uint8), mask=slot < N)


@triton.jit
def _next(node, parents, wanted, slot, SLOTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The wanted child of `node`; SLOTS when there is none."""
    return tl.min(tl.where(wanted & (parents == node), slot, SLOTS), axis=0)


@triton.jit
def _walk(  # type: ignore[no-untyped-def]
    TOKEN,
    PARENT,
    DEPTH,
    CHOICE,
    NODES,
    TOKENS,
    LENGTH,
    BONUS,
    N: tl.constexpr,
    SLOTS: tl.constexpr,
    D: tl.constexpr,
    DEPTHS: tl.constexpr,
):
    request = tl.program_id(0)
    slot, place = tl.arange(0, SLOTS), tl.arange(0, DEPTHS)
    inside, row = slot < N, request * N
    parents = tl.load(PARENT + row + slot, mask=inside, other=0)
    used = tl.load(DEPTH + row + slot, mask=inside, other=0) > 0
    wanted = used & (tl.load(TOKEN + row + slot, mask=inside) == tl.load(CHOICE + row + parents, mask=inside))
    path = tl.zeros((DEPTHS,), tl.int32)
    node, length = 0, 1
    child = _next(node, parents, wanted, slot, SLOTS)
    while (child < SLOTS) & (length < D):
        path = tl.where(place == length, child, path)
        node = child
        length += 1
        child = _next(node, parents, wanted, slot, SLOTS)
    tl.store(NODES + request * D + place, path.to(tl.int64), mask=place < D)
    emitted = tl.load(CHOICE + row + path, mask=place < length, other=0)
    tl.store(TOKENS + request * D + place, emitted, mask=place < D)
    tl.store(LENGTH + request, length)
    tl.store(BONUS + request, tl.load(CHOICE + row + node))


@triton.jit
def _reached(  # type: ignore[no-untyped-def]
    TOKEN, PARENT, DEPTH, KNOWN, LENGTH, REACHED, M: tl.constexpr, N: tl.constexpr, SLOTS: tl.constexpr
):
    request = tl.program_id(0)
    slot = tl.arange(0, SLOTS)
    inside, row = slot < N, request * N
    parents = tl.load(PARENT + row + slot, mask=inside, other=0)
    depths = tl.load(DEPTH + row + slot, mask=inside, other=0)
    used = (depths > 0) & (depths <= tl.load(LENGTH + request))
    known = tl.load(KNOWN + request * M + depths - 1, mask=used, other=0)
    wanted = used & (tl.load(TOKEN + row + slot, mask=inside, other=0) == known)
    count = 0
    child = _next(0, parents, wanted, slot, SLOTS)
    while child < SLOTS:
        count += 1
        child = _next(child, parents, wanted, slot, SLOTS)
    tl.store(REACHED + request, count)
