"""The decoder layer that target and drafter share: RMS norm, grouped-query attention with rotary positions, gated MLP.

Activations are ragged: [rows, hidden], the rows of all requests one after another. Only attention tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from ddtree.engine.cache import Batch
from ddtree.engine.config import ModelConfig
from ddtree.engine.linear import Linear, make_linear
from ddtree.engine.weights import Checkpoint


@dataclass(frozen=True)
class Block:
    """What follows the mixing of rows in every kind of layer."""

    input_norm: torch.Tensor
    out: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear

    @staticmethod
    def parts(weights: Checkpoint, prefix: str, out: str, mixed: int, config: ModelConfig) -> dict[str, Any]:
        """The fields of a Block, from the layer `prefix`, whose projection `out` takes `mixed` columns."""
        c, mlp = config, f"{prefix}mlp."
        return {
            "input_norm": weights.take(f"{prefix}input_layernorm.weight", c.hidden) + c.norm_offset,
            "out": make_linear(*weights.stack([prefix + out], [c.hidden], mixed)),
            "post_norm": weights.take(f"{prefix}post_attention_layernorm.weight", c.hidden) + c.norm_offset,
            "gate_up": make_linear(
                *weights.stack([f"{mlp}gate_proj", f"{mlp}up_proj"], [c.intermediate] * 2, c.hidden)
            ),
            "down": make_linear(*weights.stack([f"{mlp}down_proj"], [c.hidden], c.intermediate)),
        }

    def mix(self, x: torch.Tensor, batch: Batch, slot: int, config: ModelConfig) -> torch.Tensor:
        """What the rows of x [rows, hidden] learn from those before them, [rows, mixed]; writes place `slot` of the
        caches."""
        raise NotImplementedError

    def finish(self, x: torch.Tensor, mixed: torch.Tensor, config: ModelConfig) -> torch.Tensor:
        """Residual stream x [rows, hidden] plus the projection of what was mixed, then plus the MLP's output."""
        x = x + self.out(mixed)
        gate, up = self.gate_up(rms_norm(x, self.post_norm, config.eps)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


@dataclass(frozen=True)
class Layer(Block):
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None

    @classmethod
    def load(cls, weights: Checkpoint, prefix: str, config: ModelConfig) -> Layer:
        c, attention = config, f"{prefix}self_attn."
        heads = [c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
        normed = f"{attention}q_norm.weight" in weights
        return cls(
            **cls.parts(weights, prefix, "self_attn.o_proj", heads[0], c),
            qkv=make_linear(*weights.stack([f"{attention}{x}_proj" for x in "qkv"], heads, c.hidden)),
            q_norm=weights.take(f"{attention}q_norm.weight", c.head_dim) if normed else None,
            k_norm=weights.take(f"{attention}k_norm.weight", c.head_dim) if normed else None,
        )

    def mix(self, x: torch.Tensor, batch: Batch, slot: int, config: ModelConfig) -> torch.Tensor:
        return attention(batch, slot, *self.project(x, batch.rope, config))

    def project(
        self, x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor], config: ModelConfig
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x [rows, hidden] -> q [rows, heads, d], k and v [rows, kv_heads, d]; q and k normed and rotated."""
        c = config
        qkv = self.qkv(rms_norm(x, self.input_norm, c.eps)).view(-1, c.heads + 2 * c.kv_heads, c.head_dim)
        q, k, v = qkv.split([c.heads, c.kv_heads, c.kv_heads], 1)
        if self.q_norm is not None and self.k_norm is not None:
            qk = torch.cat([rms_norm(q, self.q_norm, c.eps), rms_norm(k, self.k_norm, c.eps)], 1)
        else:
            qk = qkv[:, : c.heads + c.kv_heads]
        q, k = rotate(qk, *rope).split([c.heads, c.kv_heads], 1)
        return q, k, v


def attention(batch: Batch, slot: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q [rows, heads, d] over its own span's cached rows and k, v, which are written to the cache."""
    sizes = list(batch.sizes)
    parts = zip(batch.spans, batch.biases, q.split(sizes), k.split(sizes), v.split(sizes), strict=True)
    attended = [
        attend(q_, *span.cache.write(slot, k_, v_), bias, causal=span.cache.length == 0 and bias is None)
        for span, bias, q_, k_, v_ in parts
    ]
    return attended[0] if len(attended) == 1 else torch.cat(attended)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class Rope:
    """Rotary positions (the half-split form that Hugging Face checkpoints use), tabulated for `positions` positions."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype, device: torch.device) -> None:
        exponent = torch.arange(0, config.rotary, 2, dtype=torch.float32) / config.rotary
        angle = torch.outer(torch.arange(positions, dtype=torch.float32), config.rope_theta**-exponent)
        self._cos = torch.cat([angle.cos(), angle.cos()], -1).to(device, dtype)
        self._sin = torch.cat([-angle.sin(), angle.sin()], -1).to(device, dtype)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin [n, 1, d] of positions [n], to be passed to `rotate`."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [..., heads, d] turned by its position; `sin` carries the sign, so swapping the halves is all that is left."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, causal: bool) -> torch.Tensor:
    """q [rows, heads, d] over k, v [kv_heads, keys, d] -> [rows, heads * d].

    The query heads of one K/V head are folded into rows, so nothing is repeated. `bias` is [group * rows, keys].
    """
    rows, heads, d = q.shape
    kv_heads = k.shape[0]
    if causal:
        out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k[None], v[None], is_causal=True, enable_gqa=True)
        return out[0].transpose(0, 1).reshape(rows, heads * d)
    folded = q.view(rows, kv_heads, -1, d).permute(1, 2, 0, 3).reshape(1, kv_heads, -1, d)
    out = F.scaled_dot_product_attention(folded, k[None], v[None], attn_mask=bias)
    return out.view(kv_heads, -1, rows, d).permute(2, 0, 1, 3).reshape(rows, heads * d)
