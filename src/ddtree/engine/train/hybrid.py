"""A Qwen3-Next-type decoder in its plainest form: whole sequences without caches, differentiable.

Tensors have the names and layout of a Hugging Face checkpoint. The engine computes the same token by token, with
caches and trees; that the two agree is a test of both.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

Weights = dict[str, torch.Tensor]

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "vocab_size": 1024,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "num_experts": 0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def attends(config: dict[str, Any], layer: int) -> bool:
    return (layer + 1) % int(config["full_attention_interval"]) == 0


def initial(config: dict[str, Any], generator: torch.Generator) -> Weights:
    """Random weights, of a scale from which training starts well."""
    c, weights = config, {}

    def matrix(name: str, rows: int, columns: int, scale: float = 1.0) -> None:
        weights[f"{name}.weight"] = torch.randn(rows, columns, generator=generator) * scale / math.sqrt(columns)

    def vector(name: str, n: int, centre: float, spread: float = 0.02) -> None:
        weights[name] = centre + spread * torch.randn(n, generator=generator)

    hidden, deep = c["hidden_size"], 1 / math.sqrt(2 * c["num_hidden_layers"])
    matrix("model.embed_tokens", c["vocab_size"], hidden)
    vector("model.norm.weight", hidden, 0.0)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        vector(f"{p}input_layernorm.weight", hidden, 0.0)
        vector(f"{p}post_attention_layernorm.weight", hidden, 0.0)
        for name in ("gate_proj", "up_proj"):
            matrix(f"{p}mlp.{name}", c["intermediate_size"], hidden)
        matrix(f"{p}mlp.down_proj", hidden, c["intermediate_size"], deep)
        if attends(c, layer):
            d, heads, kv = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
            for name, rows in (("q_proj", 2 * heads * d), ("k_proj", kv * d), ("v_proj", kv * d)):
                matrix(f"{p}self_attn.{name}", rows, hidden)
            matrix(f"{p}self_attn.o_proj", hidden, heads * d, deep)
            for name in ("q_norm", "k_norm"):
                vector(f"{p}self_attn.{name}.weight", d, 0.0)
        else:
            keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
            heads = c["linear_num_value_heads"]
            values = heads * c["linear_value_head_dim"]
            matrix(f"{p}linear_attn.in_proj_qkvz", 2 * keys + 2 * values, hidden)
            matrix(f"{p}linear_attn.in_proj_ba", 2 * heads, hidden)
            matrix(f"{p}linear_attn.out_proj", hidden, values, deep)
            kernel = torch.randn(2 * keys + values, 1, c["linear_conv_kernel_dim"], generator=generator)
            weights[f"{p}linear_attn.conv1d.weight"] = kernel / 2
            vector(f"{p}linear_attn.norm.weight", c["linear_value_head_dim"], 1.0)
            # Heads forget at rates from nearly nothing to about half a state per token.
            weights[f"{p}linear_attn.A_log"] = torch.linspace(0.1, 4.0, heads).log()
            vector(f"{p}linear_attn.dt_bias", heads, -2.0)
    return weights


def forward(weights: Weights, config: dict[str, Any], ids: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """ids [batch, n] -> logits [batch, n, vocab] and the residual stream [batch, n, hidden] after every layer."""
    x, residuals = weights["model.embed_tokens.weight"][ids], []
    for layer in range(config["num_hidden_layers"]):
        own = {k.removeprefix(p): w for k, w in weights.items() if k.startswith(p := f"model.layers.{layer}.")}
        mix = attention if attends(config, layer) else delta_net
        x = x + mix(own, config, norm(x, own["input_layernorm.weight"], config))
        h = norm(x, own["post_attention_layernorm.weight"], config)
        gated = F.silu(h @ own["mlp.gate_proj.weight"].T) * (h @ own["mlp.up_proj.weight"].T)
        x = x + gated @ own["mlp.down_proj.weight"].T
        residuals.append(x)
    return norm(x, weights["model.norm.weight"], config) @ weights["model.embed_tokens.weight"].T, residuals


def norm(x: torch.Tensor, weight: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + config["rms_norm_eps"]).rsqrt() * (1 + weight)


def attention(own: Weights, c: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    batch, n, _ = x.shape
    d = c["head_dim"]
    q, gate = (x @ own["self_attn.q_proj.weight"].T).view(batch, n, -1, 2, d).unbind(3)
    k, v = ((x @ own[f"self_attn.{name}_proj.weight"].T).view(batch, n, -1, d) for name in "kv")
    q, k = (norm(a, own[f"self_attn.{name}_norm.weight"], c) for a, name in ((q, "q"), (k, "k")))
    q, k = (turned(a, int(d * c["partial_rotary_factor"]), c["rope_theta"]).transpose(1, 2) for a in (q, k))
    out = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True).transpose(1, 2)
    return (out * gate.sigmoid()).flatten(2) @ own["self_attn.o_proj.weight"].T


def turned(x: torch.Tensor, rotary: int, theta: float) -> torch.Tensor:
    """x [batch, n, heads, d] with its first `rotary` dimensions turned by position, in halves."""
    frequency = theta ** -(torch.arange(0, rotary, 2, dtype=x.dtype) / rotary)
    angle = torch.outer(torch.arange(x.shape[1], dtype=x.dtype), frequency)[:, None]
    a, b, rest = x.split([rotary // 2, rotary // 2, x.shape[-1] - rotary], -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest], -1)


def delta_net(own: Weights, c: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    own = {name.removeprefix("linear_attn."): w for name, w in own.items()}
    batch, n, _ = x.shape
    key_heads, heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
    d, dv, group = c["linear_key_head_dim"], c["linear_value_head_dim"], heads // key_heads
    wide = (x @ own["in_proj_qkvz.weight"].T).view(batch, n, key_heads, -1)
    q, k, v, z = (part.flatten(2) for part in wide.split([d, d, group * dv, group * dv], -1))
    narrow = (x @ own["in_proj_ba.weight"].T).view(batch, n, key_heads, 2 * group)
    b, a = (part.flatten(2) for part in narrow.split([group, group], -1))

    padded = F.pad(torch.cat([q, k, v], -1), (0, 0, c["linear_conv_kernel_dim"] - 1, 0))
    taps = enumerate(own["conv1d.weight"][:, 0].unbind(1))
    mixed = F.silu(sum((padded[:, i : i + n] * weight for i, weight in taps), start=torch.zeros(())))
    q, k, v = mixed.split([key_heads * d, key_heads * d, heads * dv], -1)
    q, k = (part.view(batch, n, key_heads, d).repeat_interleave(group, 2) for part in (q, k))
    q, k = (part * (part.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for part in (q, k))
    v, q = v.view(batch, n, heads, dv), q / math.sqrt(d)
    log_decay = -own["A_log"].exp() * F.softplus(a + own["dt_bias"])
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    out = delta_rule(q, k, v, log_decay.mT, b.sigmoid().mT).transpose(1, 2)
    out = out * (out.square().mean(-1, keepdim=True) + c["rms_norm_eps"]).rsqrt() * own["norm.weight"]
    return (out.flatten(2) * F.silu(z)) @ own["out_proj.weight"].T


def delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor, strength: torch.Tensor
) -> torch.Tensor:
    """q, k [batch, heads, n, k_dim], v [batch, heads, n, v_dim], decay and strength [batch, heads, n] -> as v.

    The state after token i is the sum over j <= i of D_ij k_j u_j^T, where D_ij is the decay from j to i and u_j what
    token j wrote: u_i = b_i (v_i - sum over j < i of D_ij (k_i . k_j) u_j), a triangular system in place of a loop
    (Yang et al., "Parallelizing Linear Transformers with the Delta Rule", 2024).
    """
    total = log_decay.cumsum(-1)
    decay = (total[..., :, None] - total[..., None, :]).tril().exp().tril()
    system = (strength[..., None] * decay * (k @ k.mT)).tril(-1) + torch.eye(q.shape[2], dtype=q.dtype)
    written = torch.linalg.solve_triangular(system, strength[..., None] * v, upper=False, unitriangular=True)
    return (decay * (q @ k.mT)) @ written
