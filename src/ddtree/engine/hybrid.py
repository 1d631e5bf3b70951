"""Layers of a Qwen3-Next-type hybrid: Gated DeltaNets, and attention whose output is gated; both with a dense MLP."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ddtree.engine.cache import Batch, KVCache
from ddtree.engine.config import Hybrid, ModelConfig
from ddtree.engine.layers import Block, Layer, attention, rms_norm, rotate
from ddtree.engine.linear import Linear, make_linear
from ddtree.engine.recurrent import DeltaState
from ddtree.engine.weights import Checkpoint

EPS = 1e-6  # under the root that makes queries and keys of a DeltaNet unit vectors


class HybridCache(KVCache):
    """Keys and values of the layers that attend, and a recurrent state per Gated DeltaNet."""

    def __init__(self, config: ModelConfig, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(config, capacity, dtype, device)
        assert config.hybrid is not None
        recurrent = config.layers - config.attention_layers
        self.states = [DeltaState(config.hybrid, self.k) for _ in range(recurrent)]

    def commit(self, path: list[int]) -> None:
        super().commit(path)
        for state in self.states:
            state.commit(path)


@dataclass(frozen=True)
class GatedAttention(Block):
    qkv: Linear  # the gates of a head's output follow its queries
    q_norm: torch.Tensor
    k_norm: torch.Tensor

    @classmethod
    def load(cls, weights: Checkpoint, prefix: str, config: ModelConfig) -> GatedAttention:
        c, own = config, f"{prefix}self_attn."
        rows = [2 * c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
        return cls(
            **cls.parts(weights, prefix, "self_attn.o_proj", c.heads * c.head_dim, c),
            qkv=make_linear(*weights.stack([f"{own}{x}_proj" for x in "qkv"], rows, c.hidden)),
            q_norm=weights.take(f"{own}q_norm.weight", c.head_dim) + c.norm_offset,
            k_norm=weights.take(f"{own}k_norm.weight", c.head_dim) + c.norm_offset,
        )

    def mix(self, x: torch.Tensor, batch: Batch, slot: int, config: ModelConfig) -> torch.Tensor:
        c = config
        columns = self.qkv(rms_norm(x, self.input_norm, c.eps)).view(len(x), -1, c.head_dim)
        pairs, k, v = columns.split([2 * c.heads, c.kv_heads, c.kv_heads], 1)
        q, gate = pairs.view(len(x), c.heads, 2, c.head_dim).unbind(2)
        heads = torch.cat([rms_norm(q, self.q_norm, c.eps), rms_norm(k, self.k_norm, c.eps)], 1)
        turned, rest = heads.split([c.rotary, c.head_dim - c.rotary], -1)
        q, k = torch.cat([rotate(turned, *batch.rope), rest], -1).split([c.heads, c.kv_heads], 1)
        return attention(batch, slot, q, k, v) * gate.flatten(1).sigmoid()


@dataclass(frozen=True)
class GatedDeltaNet(Block):
    inputs: Linear  # queries, keys, values, output gates, write strengths, decays
    conv: torch.Tensor  # [channels, kernel]
    rate: torch.Tensor  # [v_heads]: of decay, -exp(A_log)
    rate_bias: torch.Tensor
    norm: torch.Tensor  # [v_dim]

    @classmethod
    def load(cls, weights: Checkpoint, prefix: str, config: ModelConfig) -> GatedDeltaNet:
        assert config.hybrid is not None
        h, own, hidden = config.hybrid, f"{prefix}linear_attn.", config.hidden
        values = h.v_heads * h.v_dim
        qkvz = weights.take(f"{own}in_proj_qkvz.weight", h.channels + values, hidden)
        ba = weights.take(f"{own}in_proj_ba.weight", 2 * h.v_heads, hidden)
        return cls(
            **cls.parts(weights, prefix, "linear_attn.out_proj", values, config),
            inputs=make_linear(torch.cat(ungroup(qkvz, ba, h))),
            conv=weights.take(f"{own}conv1d.weight", h.channels, 1, h.kernel).squeeze(1),
            rate=-weights.take(f"{own}A_log", h.v_heads).float().exp(),
            rate_bias=weights.take(f"{own}dt_bias", h.v_heads).float(),
            norm=weights.take(f"{own}norm.weight", h.v_dim),
        )

    def mix(self, x: torch.Tensor, batch: Batch, slot: int, config: ModelConfig) -> torch.Tensor:
        h = config.hybrid
        assert h is not None
        columns = self.inputs(rms_norm(x, self.input_norm, config.eps))
        qkv, z, b, a = columns.split([h.channels, h.v_heads * h.v_dim, h.v_heads, h.v_heads], -1)
        decay, strength = (self.rate * F.softplus(a.float() + self.rate_bias)).exp(), b.float().sigmoid()
        mixed, start = [], 0
        for span, n in zip(batch.spans, batch.sizes, strict=True):
            rows, start = slice(start, start + n), start + n
            assert isinstance(span.cache, HybridCache)
            state = span.cache.states[slot]
            q, k, v = self._heads(F.silu(state.convolve(qkv[rows], self.conv, span.tree)).float(), h)
            keep = span.cache.length > 0  # a prompt is committed as a whole
            mixed.append(state.scan(q, k, v, decay[rows], strength[rows], span.tree, keep))
        out = rms_norm(torch.cat(mixed).to(x.dtype), self.norm, config.eps)
        return out.flatten(1) * F.silu(z)

    @staticmethod
    def _heads(qkv: torch.Tensor, h: Hybrid) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[n, channels] -> q, k [n, v_heads, k_dim] of unit length, q scaled; v [n, v_heads, v_dim]."""
        keys = h.k_heads * h.k_dim
        q, k, v = qkv.split([keys, keys, h.v_heads * h.v_dim], -1)
        qk = torch.stack([q, k]).view(2, len(qkv), h.k_heads, h.k_dim)
        qk = qk * (qk.square().sum(-1, keepdim=True) + EPS).rsqrt()
        q, k = qk.repeat_interleave(h.v_heads // h.k_heads, 2).unbind(0)
        return q * h.k_dim**-0.5, k, v.view(len(qkv), h.v_heads, h.v_dim)


def layer_kind(config: ModelConfig, layer: int) -> type[Layer | GatedAttention | GatedDeltaNet]:
    if config.hybrid is None:
        return Layer
    return GatedAttention if config.hybrid.attends[layer] else GatedDeltaNet


def ungroup(qkvz: torch.Tensor, ba: torch.Tensor, h: Hybrid) -> list[torch.Tensor]:
    """The rows of q, k, v, z, b, a, each for all heads, out of the checkpoint's order: by key head, all of them."""
    group = h.v_heads // h.k_heads
    sizes = [h.k_dim, h.k_dim, group * h.v_dim, group * h.v_dim]
    wide = qkvz.view(h.k_heads, -1, qkvz.shape[-1]).split(sizes, 1)
    narrow = ba.view(h.k_heads, -1, ba.shape[-1]).split([group, group], 1)
    return [part.reshape(-1, qkvz.shape[-1]) for part in (*wide, *narrow)]
