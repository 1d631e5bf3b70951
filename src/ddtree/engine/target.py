"""The target model: one forward pass that serves prefill, decoding and the verification of chains and trees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from ddtree.engine import config as configs
from ddtree.engine import hybrid
from ddtree.engine.cache import Batch, KVCache, Span
from ddtree.engine.layers import Rope, rms_norm
from ddtree.engine.linear import make_linear
from ddtree.engine.weights import Checkpoint
from ddtree.tree import is_chain, visibility


class Target:
    """Llama, Mistral, Qwen2, Qwen3 and Qwen3-Next decoders with dense MLPs."""

    def __init__(self, folder: Path, positions: int, dtype: torch.dtype, device: torch.device) -> None:
        """Load `folder`; ValueError, one line, for a model that this forward pass would get wrong.

        `positions` bounds the positions that `forward` may see.
        """
        path = folder / "config.json"
        raw = configs.read_json(path)
        self.config = configs.parse(raw, path)
        configs.refuse_sliding_window(raw, path)
        self.eos = self.config.eos | configs.generation_eos(folder)
        self.dtype, self.device = dtype, device
        c, weights = self.config, Checkpoint(folder, dtype, device)
        self.embedding = weights.take("model.embed_tokens.weight", c.vocab, c.hidden)
        self.layers = [hybrid.layer_kind(c, i).load(weights, f"model.layers.{i}.", c) for i in range(c.layers)]
        self.slots = c.slots()
        self.norm = weights.take("model.norm.weight", c.hidden) + c.norm_offset
        self.head = make_linear(self.embedding if c.tied else weights.take("lm_head.weight", c.vocab, c.hidden))
        weights.expect_all_used("lm_head.weight")
        self.rope = Rope(c, positions, dtype, device)

    def new_cache(self, capacity: int) -> KVCache:
        kind = hybrid.HybridCache if self.config.hybrid else KVCache
        return kind(self.config, capacity, self.dtype, self.device)

    def forward(self, spans: Sequence[Span], taps: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`hidden`, with logits [n, vocab] in place of the rows that they are made of."""
        rows, features = self.hidden(spans, taps)
        return self.logits(rows), features

    @torch.inference_mode()
    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(rows)

    @torch.inference_mode()
    def hidden(self, spans: Sequence[Span], taps: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run all spans as one ragged batch; their K/V rows are written, not committed.

        Returns the final rows [n, hidden] from which the wanted logits follow, spans one after another, and, when
        `taps` names layers, the residual stream after them [rows, len(taps) * hidden], which is what a DFlash drafter
        conditions on.
        """
        c = self.config
        sizes = [len(span.tree) for span in spans]
        ids = torch.tensor([token for span in spans for token in span.tree.tokens], device=self.device)
        positions = [position for span in spans for position in self._positions(span)]
        rope = self.rope.at(torch.tensor(positions, device=self.device))
        batch = Batch(spans, sizes, [self._bias(span) for span in spans], rope)
        x = self.embedding[ids]
        features = x.new_empty(len(ids), len(taps), c.hidden) if taps else None
        for i, layer in enumerate(self.layers):
            x = layer.finish(x, layer.mix(x, batch, self.slots[i], c), c)
            if features is not None and i in taps:
                features[:, taps.index(i)] = x
        wanted = [rows[span.logits_from :] for span, rows in zip(spans, x.split(sizes), strict=True)]
        final = rms_norm(wanted[0] if len(wanted) == 1 else torch.cat(wanted), self.norm, c.eps)
        return final, None if features is None else features.flatten(1)

    def _positions(self, span: Span) -> list[int]:
        return [span.cache.length + depth for depth in span.tree.depths]

    def _bias(self, span: Span) -> torch.Tensor | None:
        """Additive mask [group * rows, keys], or None where none is needed: one row, or a plain prompt."""
        n, length = len(span.tree), span.cache.length
        if n == 1 or (length == 0 and is_chain(span.tree)):
            return None
        bias = torch.zeros(n, length + n, dtype=self.dtype)
        bias[:, length:].masked_fill_(~visibility(span.tree), float("-inf"))
        return bias.to(self.device).repeat(self.config.group, 1)
