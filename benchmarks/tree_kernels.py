"""Microseconds of the SGLang plugin's device steps on a GPU, each a CUDA graph, after a check against PyTorch.

The inputs are those of one verify step: bfloat16 logits of a drafter's block, the trees built from them, and paths that
leave the spine. Every shape is first compared with the reference implementation; a difference ends the run.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable

import torch

from ddtree.sglang_plugin.tree import Trees, Walks, log_probs, reference

DEPTH, CONTEXT, LAYERS, ROW_BYTES = 15, 4096, 32, 2048
REPLAYS, GROUPS = 50, 7


def microseconds(step: Callable[[], object]) -> float:
    """Median over groups of graph replays."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    found = []
    for _ in range(GROUPS + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / REPLAYS * 1e3)
    return statistics.median(found[1:])


def same(what: str, a: torch.Tensor, b: torch.Tensor) -> None:
    if not torch.equal(a.cpu(), b.cpu()):
        sys.exit(f"error: {what}: kernel and reference differ in {int((a.cpu() != b.cpu()).sum())} places")


def measure(requests: int, budget: int, topk: int, vocab: int) -> dict[str, float]:
    """Microseconds per step, by name."""
    from ddtree.sglang_plugin.tree import kernels

    device, nodes = "cuda", budget + 1
    generator = torch.Generator(device).manual_seed(budget)
    x = (torch.randn(requests * DEPTH, vocab, device=device, generator=generator) * 3).bfloat16()
    roots = torch.randint(vocab, (requests,), device=device, generator=generator)
    best = kernels.merge(kernels.shortlist(x, topk, 0))
    same("shortlist", best.ids, reference.merge(reference.shortlist(x, topk, 0)).ids)
    tokens = best.ids.view(requests, DEPTH, topk)
    probs = log_probs(best).view(requests, DEPTH, topk).contiguous()

    trees, plain = (Trees.empty(requests, nodes, device) for _ in range(2))
    kernels.build_trees(tokens, probs, roots, trees)
    reference.build_trees(tokens, probs, roots, plain)
    for name in Trees.__dataclass_fields__:
        same(f"trees.{name}", getattr(trees, name), getattr(plain, name))

    seq_lens = torch.full((requests,), CONTEXT, device=device)
    mask, plain_mask = (
        torch.zeros(requests * nodes * (CONTEXT + nodes), dtype=torch.bool, device=device) for _ in "ab"
    )
    kernels.write_mask(trees, seq_lens, mask)
    reference.write_mask(trees, seq_lens, plain_mask)
    same("mask", mask, plain_mask)

    # The target wants the last child of every node that has one: paths off the spine, so that rows move.
    choices = torch.full((requests, nodes), -1, device=device)
    order = torch.arange(nodes, device=device).expand(requests, -1)
    choices.scatter_reduce_(1, trees.parents.long(), order, "amax")
    choices = trees.tokens.gather(1, choices.clamp(min=0))
    walks, plain_walks = (Walks.empty(requests, DEPTH + 1, device) for _ in range(2))
    kernels.walk(trees, choices, walks)
    reference.walk(trees, choices, plain_walks)
    for name in Walks.__dataclass_fields__:
        same(f"walks.{name}", getattr(walks, name), getattr(plain_walks, name))

    pool = torch.randint(2**60, (2 * LAYERS, requests * nodes, ROW_BYTES // 8), device=device, generator=generator)
    slots = torch.randperm(requests * nodes, device=device, generator=generator).view(requests, nodes)
    pointers = torch.tensor([buffer.data_ptr() for buffer in pool], device=device)
    row_bytes = torch.full((2 * LAYERS,), ROW_BYTES, device=device)
    expected = pool.clone()
    for request, length in enumerate(walks.lengths.tolist()):
        path = walks.nodes[request, :length]
        expected[:, slots[request, :length]] = pool[:, slots[request, path]]
    kernels.move_rows(pointers, row_bytes, slots, walks)
    same("moved rows", pool, expected)

    logits = torch.randn(requests * nodes, vocab, device=device, generator=generator).bfloat16()
    hot, seed = torch.ones(requests * nodes, device=device), torch.tensor([1], device=device)
    return {
        "topk+lse": microseconds(lambda: kernels.merge(kernels.shortlist(x, topk, 0))),
        "torch topk+lse": microseconds(lambda: (x.topk(topk), x.float().logsumexp(-1))),
        "tree": microseconds(lambda: kernels.build_trees(tokens, probs, roots, trees)),
        "mask": microseconds(lambda: kernels.write_mask(trees, seq_lens, mask)),
        "walk": microseconds(lambda: kernels.walk(trees, choices, walks)),
        "move": microseconds(lambda: kernels.move_rows(pointers, row_bytes, slots, walks)),
        "sample": microseconds(lambda: kernels.sample_rows(logits, hot, seed)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, default=49152)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--budgets", type=int, nargs="+", default=[15, 31, 63, 255])
    parser.add_argument("--topk", type=int, nargs="+", default=[4, 8])
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: needs a CUDA GPU, and PyTorch finds none here")
    print(f"{torch.cuda.get_device_name()}, vocabulary {args.vocab}, microseconds per replay")
    header = True
    for requests, budget, topk in itertools.product(args.requests, args.budgets, args.topk):
        found = measure(requests, budget, topk, args.vocab)
        if header:
            print(f"{'requests':>8}{'B':>5}{'K':>4}" + "".join(f"{name:>16}" for name in found))
            header = False
        print(f"{requests:8}{budget:5}{topk:4}" + "".join(f"{value:16.1f}" for value in found.values()), flush=True)


if __name__ == "__main__":
    main()
