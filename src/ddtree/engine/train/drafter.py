"""A DFlash drafter for the tiny hybrid, trained on the target's own greedy continuations of its text."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ddtree.engine.train import hybrid
from ddtree.engine.train.hybrid import Weights, turned

BLOCK, TAPS, MASK = 8, (1, 3), 0  # MASK: the token that no text contains
READ = 16  # tokens of text that a training sequence starts with
ANCHORS = 6  # blocks drafted per sequence and step

CONFIG: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "num_target_layers": hybrid.CONFIG["num_hidden_layers"],
    "block_size": BLOCK,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(TAPS)},
    "attention_bias": False,
    **{
        key: hybrid.CONFIG[key]
        for key in (
            "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
            "head_dim", "rope_theta", "max_position_embeddings", "rms_norm_eps", "hidden_act", "torch_dtype",
        )
    },
}  # fmt: skip


def initial(generator: torch.Generator) -> Weights:
    c = CONFIG
    hidden, d, heads, kv = (c[k] for k in ("hidden_size", "head_dim", "num_attention_heads", "num_key_value_heads"))
    weights = {"hidden_norm.weight": torch.ones(hidden), "norm.weight": torch.ones(hidden)}
    shapes = {"fc": (hidden, len(TAPS) * hidden)}
    for layer in range(c["num_hidden_layers"]):
        p = f"layers.{layer}."
        shapes |= {f"{p}self_attn.q_proj": (heads * d, hidden), f"{p}self_attn.o_proj": (hidden, heads * d)}
        shapes |= {f"{p}self_attn.{name}_proj": (kv * d, hidden) for name in "kv"}
        shapes |= {f"{p}mlp.{name}_proj": (c["intermediate_size"], hidden) for name in ("gate", "up")}
        shapes[f"{p}mlp.down_proj"] = (hidden, c["intermediate_size"])
        weights |= {f"{p}{name}_layernorm.weight": torch.ones(hidden) for name in ("input", "post_attention")}
        weights |= {f"{p}self_attn.{name}_norm.weight": torch.ones(d) for name in "qk"}
    for name, (rows, columns) in shapes.items():
        weights[f"{name}.weight"] = torch.randn(rows, columns, generator=generator) * 0.7 / math.sqrt(columns)
    return weights


def forward(weights: Weights, embedding: torch.Tensor, features: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Logits [batch, BLOCK - 1, vocab] after the anchor tokens [batch], which follow the target's residual streams
    `features` [batch, n, taps * hidden]."""
    c, n = CONFIG, features.shape[1]
    context = norm(features @ weights["fc.weight"].T, weights["hidden_norm.weight"])
    ids = torch.full((len(anchors), BLOCK), MASK)
    ids[:, 0] = anchors
    x = embedding[ids]

    def heads(own: Weights, rows: torch.Tensor, name: str) -> torch.Tensor:
        return (rows @ own[f"self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, c["head_dim"]))

    for layer in range(c["num_hidden_layers"]):
        own = {k.removeprefix(p): w for k, w in weights.items() if k.startswith(p := f"layers.{layer}.")}
        h = norm(x, own["input_layernorm.weight"])
        seen = torch.cat([context, h], 1)
        q = F.pad(heads(own, h, "q"), (0, 0, 0, 0, n, 0))  # so that its rows stand at their positions
        q, k = (norm(a, own[f"self_attn.{s}_norm.weight"]) for a, s in ((q, "q"), (heads(own, seen, "k"), "k")))
        q, k = (turned(a, c["head_dim"], c["rope_theta"]).transpose(1, 2) for a in (q, k))
        v = heads(own, seen, "v").transpose(1, 2)
        out = F.scaled_dot_product_attention(q[:, :, n:], k, v, enable_gqa=True).transpose(1, 2).flatten(2)
        x = x + out @ own["self_attn.o_proj.weight"].T
        h = norm(x, own["post_attention_layernorm.weight"])
        gated = F.silu(h @ own["mlp.gate_proj.weight"].T) * (h @ own["mlp.up_proj.weight"].T)
        x = x + gated @ own["mlp.down_proj.weight"].T
    return norm(x[:, 1:], weights["norm.weight"]) @ embedding.T


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, CONFIG["rms_norm_eps"])


@torch.no_grad()
def continuations(
    target: Weights, ids: torch.Tensor, sequences: int, written: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of `ids` [n] with the target's greedy continuations [sequences, READ + written], and their features."""
    starts = torch.randint(len(ids) - READ, (sequences,), generator=generator)
    known = ids[starts[:, None] + torch.arange(READ)]
    for _ in range(written):
        logits, _ = hybrid.forward(target, hybrid.CONFIG, known)
        known = torch.cat([known, logits[:, -1:].argmax(-1)], 1)
    residuals = hybrid.forward(target, hybrid.CONFIG, known)[1]
    return known, torch.cat([residuals[layer] for layer in TAPS], -1)


def losses(
    weights: Weights, embedding: torch.Tensor, known: torch.Tensor, features: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Mean cross entropy of ANCHORS drafted blocks per sequence of `known`."""
    found = []
    for anchor in torch.randint(READ, known.shape[1] - BLOCK, (ANCHORS,), generator=generator).tolist():
        logits = forward(weights, embedding, features[:, :anchor], known[:, anchor])
        found.append(F.cross_entropy(logits.flatten(0, 1), known[:, anchor + 1 : anchor + BLOCK].flatten()))
    return torch.stack(found).mean()
