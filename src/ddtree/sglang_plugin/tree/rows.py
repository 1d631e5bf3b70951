"""Triton kernel that moves K/V rows in place."""

# No `from __future__ import annotations`: Triton reads the annotations of its kernels as objects.
import torch
import triton
import triton.language as tl

from ddtree.sglang_plugin.tree.layout import Walks

TILE = 2048  # words of 8 bytes in registers


def move_rows(pointers: torch.Tensor, row_bytes: torch.Tensor, slots: torch.Tensor, walks: Walks) -> None:
    depth = walks.nodes.shape[1]
    places = triton.next_power_of_2(depth)
    _move[(len(pointers), len(slots))](
        pointers.view(torch.int64),
        row_bytes,
        slots,
        slots.stride(0),
        walks.nodes,
        walks.lengths,
        D=depth,
        PLACES=places,
        WORDS=max(TILE // places, 16),
    )


@triton.jit
def _move(  # type: ignore[no-untyped-def]
    POINTERS,
    ROW_BYTES,
    SLOTS,
    stride,
    NODES,
    LENGTH,
    D: tl.constexpr,
    PLACES: tl.constexpr,
    WORDS: tl.constexpr,
):
    buffer, request = tl.program_id(0), tl.program_id(1)
    place = tl.arange(0, PLACES)
    on_path = place < tl.minimum(tl.load(LENGTH + request), D)
    node = tl.load(NODES + request * D + place, mask=on_path, other=0)
    # Ids grow along the path, so a row moves from behind or not at all; most paths do not move.
    moves = on_path & (node > place)
    if tl.max(moves.to(tl.int32), axis=0) > 0:
        words = tl.load(ROW_BYTES + buffer).to(tl.int64) // 8
        base = tl.load(POINTERS + buffer).to(tl.pointer_type(tl.int64))
        source = tl.load(SLOTS + request * stride + node, mask=moves, other=0).to(tl.int64) * words
        target = tl.load(SLOTS + request * stride + place, mask=moves, other=0).to(tl.int64) * words
        start = words * 0
        while start < words:
            word = start + tl.arange(0, WORDS)
            inside = moves[:, None] & (word < words)[None, :]
            held = tl.load(base + source[:, None] + word[None, :], mask=inside)
            tl.debug_barrier()  # a target may be another row's source: all are read before one is written
            tl.store(base + target[:, None] + word[None, :], held, mask=inside)
            start += WORDS
