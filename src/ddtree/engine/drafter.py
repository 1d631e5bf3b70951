"""DFlash block-diffusion drafter, loaded from a z-lab style checkpoint folder.

From the target's residual stream at every committed token (its context) and the last token, the anchor, it proposes
the next block_size - 1 tokens at once: mask tokens after the anchor attend to the context and to each other in both
directions. Embedding and output head are the target's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ddtree.engine import best
from ddtree.engine import config as configs
from ddtree.engine.layers import Layer, Rope, attend, rms_norm, rotate
from ddtree.engine.linear import make_linear
from ddtree.engine.target import Target
from ddtree.engine.weights import Checkpoint


class DraftContext:
    """The drafter's keys and values of one request: [layers, kv_heads, block + capacity, d].

    The first `block` rows are scratch for the block being drafted; the rest is a ring of the last `capacity` context
    tokens. Keys carry their positions and attention does not care about the order of rows, so a ring is a window.
    """

    def __init__(self, like: torch.Tensor, config: configs.ModelConfig, block: int, capacity: int) -> None:
        shape = (config.layers, config.kv_heads, block + capacity, config.head_dim)
        self.k, self.v = like.new_empty(shape), like.new_empty(shape)
        self.block, self.capacity, self.seen = block, capacity, 0

    @property
    def rows(self) -> int:
        """Rows that attention covers: the block and what the window holds."""
        return self.block + min(self.seen, self.capacity)

    def append(self, k: torch.Tensor, v: torch.Tensor, skipped: int) -> None:
        """Add the last len(k) of `skipped` + len(k) new tokens; k, v [n, layers, kv_heads, d] with n <= capacity."""
        start = self.seen + skipped
        slots = torch.arange(start, start + len(k), device=k.device) % self.capacity + self.block
        self.k[:, :, slots] = k.permute(1, 2, 0, 3)
        self.v[:, :, slots] = v.permute(1, 2, 0, 3)
        self.seen = start + len(k)


@dataclass(frozen=True)
class Candidates:
    """Of one request, per depth: the best tokens and their log-probs, sorted downwards."""

    tokens: list[list[int]]
    log_probs: list[list[float]]


class Drafter:
    def __init__(self, folder: Path, target: Target, window: int | None, positions: int) -> None:
        """Load `folder` as the drafter of `target`; ValueError, one line, when the two do not fit."""
        path = folder / "config.json"
        raw = configs.read_json(path)
        self.config = configs.parse(raw, path)
        c, t = self.config, target.config
        if c.hybrid:
            raise ValueError(f"{path}: model_type {raw['model_type']} is not supported in a drafter")
        self.block, self.taps, self.mask_id = _dflash_keys(raw, path, t)
        for key, mine, its in (("hidden_size", c.hidden, t.hidden), ("vocab_size", c.vocab, t.vocab)):
            if mine != its:
                raise ValueError(f"{path}: {key} is {mine}, but the target's is {its}")
        self.window = window or _checkpoint_window(raw, path)
        weights = Checkpoint(folder, target.dtype, target.device)
        self.layers = [Layer.load(weights, f"layers.{i}.", c) for i in range(c.layers)]
        self.fuse = make_linear(weights.take("fc.weight", c.hidden, len(self.taps) * c.hidden))
        self.context_norm = weights.take("hidden_norm.weight", c.hidden)
        self.norm = weights.take("norm.weight", c.hidden)
        # Keys and values of a context token come from the same vector in every layer: one product for all layers.
        kv = [f"layers.{i}.self_attn.{x}_proj" for i in range(c.layers) for x in "kv"]
        self.context_kv = make_linear(*weights.stack(kv, [c.kv_heads * c.head_dim] * len(kv), c.hidden))
        weights.expect_all_used()
        self.target = target
        self.rope = Rope(c, positions, target.dtype, target.device)
        norms = [layer.k_norm for layer in self.layers if layer.k_norm is not None]
        self.context_k_norm = torch.stack(norms).unsqueeze(1) if norms else None

    def new_context(self, tokens: int) -> DraftContext:
        """Context of a request that will commit at most `tokens` tokens."""
        return DraftContext(self.target.embedding, self.config, self.block, min(tokens, self.window or tokens))

    @torch.inference_mode()
    def extend(self, contexts: list[DraftContext], features: list[torch.Tensor]) -> None:
        """Add committed tokens, given as the target's residual streams [n, taps * hidden], one tensor per request."""
        c = self.config
        recent = [f[-context.capacity :] for context, f in zip(contexts, features, strict=True)]
        skipped = [len(f) - len(r) for f, r in zip(features, recent, strict=True)]
        starts = [context.seen + s for context, s in zip(contexts, skipped, strict=True)]
        positions = [p for start, r in zip(starts, recent, strict=True) for p in range(start, start + len(r))]
        x = rms_norm(self.fuse(torch.cat(list(recent))), self.context_norm, c.eps)
        k, v = self.context_kv(x).view(len(x), c.layers, 2, c.kv_heads, c.head_dim).unbind(2)
        if self.context_k_norm is not None:
            k = torch.nn.functional.rms_norm(k, (c.head_dim,), None, c.eps) * self.context_k_norm
        cos, sin = self.rope.at(torch.tensor(positions, device=x.device))
        k = rotate(k, cos.unsqueeze(1), sin.unsqueeze(1))
        sizes = [len(r) for r in recent]
        for context, k_, v_, s in zip(contexts, k.split(sizes), v.split(sizes), skipped, strict=True):
            context.append(k_, v_, s)

    @torch.inference_mode()
    def draft(self, contexts: list[DraftContext], anchors: list[int], depth: int, topk: int) -> list[Candidates]:
        """The `topk` best tokens at each of the next `depth` positions after every request's anchor token.

        The anchor stands at position `context.seen`. Log-probs are over the whole vocabulary, not renormalised.
        """
        c, block, n = self.config, self.block, len(contexts)
        ids = torch.tensor([[anchor] + [self.mask_id] * (block - 1) for anchor in anchors], device=self.target.device)
        positions = [p for context in contexts for p in range(context.seen, context.seen + block)]
        rope = self.rope.at(torch.tensor(positions, device=self.target.device))
        x = self.target.embedding[ids.flatten()]
        for i, layer in enumerate(self.layers):
            q, k, v = layer.project(x, rope, c)
            attended = []
            for context, q_, k_, v_ in zip(contexts, q.split(block), k.split(block), v.split(block), strict=True):
                keys, values = context.k[i, :, : context.rows], context.v[i, :, : context.rows]
                keys[:, :block], values[:, :block] = k_.transpose(0, 1), v_.transpose(0, 1)
                attended.append(attend(q_, keys, values, None, causal=False))
            x = layer.finish(x, torch.cat(attended), c)
        h = rms_norm(x.view(n, block, c.hidden)[:, 1 : depth + 1], self.norm, c.eps)
        return _best(self.target.head(h.reshape(-1, c.hidden)), n, topk)


def _best(logits: torch.Tensor, requests: int, topk: int) -> list[Candidates]:
    """The `topk` best of logits [requests * depth, vocab], sorted; with one candidate no log-prob is needed."""
    if topk == 1:
        tokens = best.argmax(logits).view(requests, -1, 1).tolist()
        return [Candidates(t, [[0.0]] * len(t)) for t in tokens]
    logits = logits.float()
    values, index = best.topk(logits, topk)
    log_probs = (values - logits.logsumexp(-1, keepdim=True)).clamp_(max=0.0)
    shape = (requests, -1, values.shape[-1])
    return [Candidates(t, p) for t, p in zip(index.view(shape).tolist(), log_probs.view(shape).tolist(), strict=True)]


def _dflash_keys(raw: dict[str, Any], path: Path, target: configs.ModelConfig) -> tuple[int, list[int], int]:
    """Block size, tapped target layers, mask token; ValueError when one is missing or does not fit the target."""
    own = raw.get("dflash_config") or {}
    try:
        block, taps, mask = int(raw["block_size"]), [int(i) for i in own["target_layer_ids"]], int(own["mask_token_id"])
    except (KeyError, TypeError) as error:
        key = error.args[0]
        raise ValueError(f"{path}: no DFlash drafter (needs block_size and dflash_config, missing: {key})") from None
    layers = raw.get("num_target_layers", target.layers)
    if layers != target.layers:
        raise ValueError(f"{path}: num_target_layers is {layers}, but the target has {target.layers} layers")
    if not taps or min(taps) < 0 or max(taps) >= target.layers:
        raise ValueError(f"{path}: target_layer_ids {taps} must lie in 0..{target.layers - 1}, the target's layers")
    if not 0 <= mask < target.vocab:
        raise ValueError(f"{path}: mask_token_id {mask} is outside the target's vocabulary of {target.vocab}")
    if not 2 <= block <= 256:
        raise ValueError(f"{path}: block_size is {block} (allowed: 2 to 256)")
    return block, taps, mask


def _checkpoint_window(raw: dict[str, Any], path: Path) -> int | None:
    """The window that the checkpoint was trained with, if it has one. It holds for all layers or for none."""
    kinds = set(raw.get("layer_types") or ("full_attention",))
    if kinds == {"full_attention"}:
        return None
    if kinds == {"sliding_attention"} and raw.get("sliding_window"):
        return int(raw["sliding_window"])
    raise ValueError(f"{path}: layer_types {sorted(kinds)} are not supported (allowed: all full or all sliding)")
