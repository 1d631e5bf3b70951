"""The decoder layer that target and drafter share: RMS norm, grouped-query attention with rotary positions, gated MLP.

Activations are ragged: [rows, hidden], the rows of all requests one after another. Only attention tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ddtree.engine.config import ModelConfig
from ddtree.engine.linear import Linear, make_linear
from ddtree.engine.weights import Checkpoint


@dataclass(frozen=True)
class Layer:
    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear

    @classmethod
    def load(cls, weights: Checkpoint, prefix: str, config: ModelConfig) -> Layer:
        c, attention, mlp = config, f"{prefix}self_attn.", f"{prefix}mlp."
        heads = [c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
        normed = f"{attention}q_norm.weight" in weights
        return cls(
            input_norm=weights.take(f"{prefix}input_layernorm.weight", c.hidden),
            qkv=make_linear(*weights.stack([f"{attention}{x}_proj" for x in "qkv"], heads, c.hidden)),
            q_norm=weights.take(f"{attention}q_norm.weight", c.head_dim) if normed else None,
            k_norm=weights.take(f"{attention}k_norm.weight", c.head_dim) if normed else None,
            out=make_linear(*weights.stack([f"{attention}o_proj"], [c.hidden], heads[0])),
            post_norm=weights.take(f"{prefix}post_attention_layernorm.weight", c.hidden),
            gate_up=make_linear(*weights.stack([f"{mlp}gate_proj", f"{mlp}up_proj"], [c.intermediate] * 2, c.hidden)),
            down=make_linear(*weights.stack([f"{mlp}down_proj"], [c.hidden], c.intermediate)),
        )

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

    def finish(self, x: torch.Tensor, attended: torch.Tensor, config: ModelConfig) -> torch.Tensor:
        """Residual stream x [rows, hidden] plus attention's output [rows, heads * d], then plus the MLP's."""
        x = x + self.out(attended)
        gate, up = self.gate_up(rms_norm(x, self.post_norm, config.eps)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class Rope:
    """Rotary positions (the half-split form that Hugging Face checkpoints use), tabulated for `positions` positions."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype, device: torch.device) -> None:
        exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
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
