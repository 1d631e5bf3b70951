"""The device steps in plain PyTorch: what the Triton kernels must equal, and what runs where Triton does not.

Shapes and contracts: see the package. Only `sample_rows` and `move_rows` wait for the device.
"""

from __future__ import annotations

import ctypes

import torch

from ddtree.sglang_plugin.tree.layout import Shortlist, Trees, Walks


def shortlist(logits: torch.Tensor, k: int, first_id: int) -> Shortlist:
    x = logits.float().nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    # A stable sort, as topk does not say which of equal logits it takes.
    values, ids = (t[:, :k] for t in x.sort(dim=-1, descending=True, stable=True))
    missing = k - values.shape[1]
    values = torch.nn.functional.pad(values, (0, missing), value=-torch.inf)
    ids = torch.nn.functional.pad(ids, (0, missing)) + first_id
    return Shortlist(values.unsqueeze(1), ids.unsqueeze(1), x.logsumexp(-1, keepdim=True))


def merge(parts: Shortlist) -> Shortlist:
    k = parts.logits.shape[-1]
    values, order = parts.logits.flatten(1).sort(dim=-1, descending=True, stable=True)
    ids = parts.ids.flatten(1).gather(1, order)
    return Shortlist(values[:, None, :k], ids[:, None, :k], parts.lse.logsumexp(-1, keepdim=True))


def build_trees(tokens: torch.Tensor, log_probs: torch.Tensor, roots: torch.Tensor, out: Trees) -> None:
    """Each taken node keeps one pending child, its next rank; the best pending child is the next node.

    Exact: from any best node that is not taken, going to its left sibling or parent never lowers the score and ends at
    a pending one. Adding log-probs of at most 0 is monotone in floating point, so rounding cannot reorder the two.
    """
    requests, depth, k = log_probs.shape
    device, nodes = log_probs.device, out.nodes
    every = torch.arange(requests, device=device)
    score = torch.full((requests, nodes), -torch.inf, device=device)  # log-prob of the node's prefix
    score[:, 0] = 0
    pending = torch.full_like(score, -torch.inf)
    pending[:, 0] = log_probs[:, 0, 0]
    rank, last = torch.zeros_like(out.parents), torch.full_like(out.parents, -1)
    out.tokens.copy_(roots.unsqueeze(1).expand_as(out.tokens))
    for tensor, value in ((out.parents, 0), (out.depths, 0), (out.first_child, -1), (out.next_sibling, -1)):
        tensor.fill_(value)
    for n in range(1, nodes):
        best, parent = pending.max(1)
        live = best > -torch.inf
        d, r = out.depths[every, parent], rank[every, parent]
        older = last[every, parent]
        out.tokens[:, n] = torch.where(live, tokens[every, d.clamp(max=depth - 1), r.clamp(max=k - 1)], roots)
        out.parents[:, n] = torch.where(live, parent, 0)
        out.depths[:, n] = torch.where(live, d + 1, 0)
        _put(out.first_child, parent, n, live & (older < 0))
        _put(out.next_sibling, older.clamp(min=0), n, live & (older >= 0))
        _put(last, parent, n, live)
        rank[every, parent] = r + 1
        sibling = score[every, parent] + log_probs[every, d.clamp(max=depth - 1), (r + 1).clamp(max=k - 1)]
        pending[every, parent] = torch.where(live & (r + 1 < k), sibling, -torch.inf)
        child = best + log_probs[every, (d + 1).clamp(max=depth - 1), 0]
        score[:, n] = best
        pending[:, n] = torch.where(live & (d + 1 < depth), child, -torch.inf)


def write_mask(trees: Trees, seq_lens: torch.Tensor | None, mask: torch.Tensor) -> None:
    requests, nodes = trees.parents.shape
    device = trees.parents.device
    seen = torch.eye(nodes, dtype=torch.bool, device=device).repeat(requests, 1, 1)
    seen[:, :, 0] = True
    above = trees.parents.long()
    for _ in range(nodes.bit_length()):  # who is within 2^i steps above me: doubling
        seen |= seen.gather(1, above.unsqueeze(-1).expand(-1, -1, nodes))
        above = above.gather(1, above)
    prefix = torch.zeros(requests, dtype=torch.int64, device=device) if seq_lens is None else seq_lens.long()
    width = prefix + nodes
    start = (width * nodes).cumsum(0) - width * nodes
    row = start[:, None] + torch.arange(nodes, device=device) * width[:, None] + prefix[:, None]
    cells = row.unsqueeze(-1) + torch.arange(nodes, device=device)
    mask.index_copy_(0, cells.flatten(), seen.flatten().to(mask.dtype))


def sample_rows(logits: torch.Tensor, temperatures: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    x = logits.float()
    generator = torch.Generator(x.device).manual_seed(int(seed))
    noise = torch.empty_like(x).exponential_(generator=generator).log()
    hot = temperatures.unsqueeze(1)
    # Of independent exponentials, the one over the largest rate is smallest: the Gumbel-max trick.
    return torch.where(hot > 0, x / hot.clamp(min=1e-6) - noise, x).argmax(-1)


def walk(trees: Trees, choices: torch.Tensor, out: Walks) -> None:
    node, length = torch.zeros_like(out.bonus), torch.ones_like(out.lengths)
    walking = torch.ones_like(out.bonus, dtype=torch.bool)
    out.nodes.zero_()
    for depth in range(1, out.nodes.shape[1]):
        child = _child(trees, node, choices.gather(1, node.unsqueeze(1))[:, 0])
        walking = walking & (child >= 0)
        node = torch.where(walking, child, node)
        out.nodes[:, depth] = torch.where(walking, node, 0)
        length = length + walking
    out.lengths.copy_(length)
    out.bonus.copy_(choices.gather(1, node.unsqueeze(1))[:, 0])
    emitted = torch.arange(out.nodes.shape[1], device=choices.device) < length.unsqueeze(1)
    out.tokens.copy_(torch.where(emitted, choices.gather(1, out.nodes), 0))


def reached(trees: Trees, known: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    node, found = torch.zeros_like(known[:, 0]), torch.zeros_like(lengths, dtype=torch.int32)
    walking = torch.ones_like(node, dtype=torch.bool)
    for i in range(known.shape[1]):
        child = _child(trees, node, known[:, i])
        walking = walking & (child >= 0) & (i < lengths)
        node = torch.where(walking, child, node)
        found = found + walking
    return found


def move_rows(pointers: torch.Tensor, row_bytes: torch.Tensor, slots: torch.Tensor, walks: Walks) -> None:
    # Through the host: this is for tests, where the buffers lie in the host's memory.
    for request, length in enumerate(walks.lengths.tolist()):
        for i, node in enumerate(walks.nodes[request, :length].tolist()):  # node >= i: in order nothing is overwritten
            target, source = int(slots[request, i]), int(slots[request, node])
            for address, size in zip(pointers.tolist(), row_bytes.tolist(), strict=True):
                ctypes.memmove(address + target * size, address + source * size, size)


def _child(trees: Trees, node: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """The child of `node` [R] that holds `token` [R], or -1."""
    linked = trees.parents == node.unsqueeze(1)
    hit = linked & (trees.depths > 0) & (trees.tokens == token.unsqueeze(1))
    return torch.where(hit.any(1), hit.int().argmax(1), -1)


def _put(tensor: torch.Tensor, column: torch.Tensor, value: int, where: torch.Tensor) -> None:
    """tensor[b, column[b]] = value where `where` [R] holds."""
    rows = torch.arange(len(tensor), device=tensor.device)
    tensor[rows, column] = torch.where(where, value, tensor[rows, column]).to(tensor.dtype)
