"""The lean forward pass against a slow, literal one, over the variants of checkpoints that it accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_pair

from ddtree.engine.target import Span, Target
from ddtree.tree import Tree, chain

CPU = torch.device("cpu")
VARIANTS: dict[str, dict[str, object]] = {
    "llama": {},
    "untied": {"tie_word_embeddings": False},
    "biased": {"attention_bias": True, "model_type": "qwen2"},
    "normed": {"model_type": "qwen3", "rope_theta": 1e6},
    "rope-parameters": {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
}
PROMPT = [1, 7, 3, 9, 4, 4, 2, 11]


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def literal(folder: Path, ids: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits [n, vocab] and the residual stream after every layer, row by row, in float64."""
    c = json.loads((folder / "config.json").read_text())
    w = {k: v.double() for k, v in load_file(folder / "model.safetensors").items()}
    d, heads, groups = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    theta, eps, n = c["rope_theta"] or c["rope_parameters"]["rope_theta"], c["rms_norm_eps"], len(ids)
    x, residuals = w["model.embed_tokens.weight"][ids], []

    def turn(vector: torch.Tensor, position: int) -> torch.Tensor:
        out = vector.clone()
        for i in range(d // 2):
            a = torch.tensor(position * theta ** (-2 * i / d), dtype=torch.float64)
            out[i] = vector[i] * a.cos() - vector[i + d // 2] * a.sin()
            out[i + d // 2] = vector[i + d // 2] * a.cos() + vector[i] * a.sin()
        return out

    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = norm(x, w[p + "input_layernorm.weight"], eps)
        q, k, v = (
            h @ w[f"{p}self_attn.{s}_proj.weight"].T + w.get(f"{p}self_attn.{s}_proj.bias", torch.zeros(()))
            for s in "qkv"
        )
        out = torch.zeros(n, heads, d, dtype=torch.float64)
        for head in range(heads):
            part = slice(head // (heads // groups) * d, head // (heads // groups) * d + d)
            qs, ks = list(q[:, head * d : head * d + d]), list(k[:, part])
            if f"{p}self_attn.q_norm.weight" in w:
                qs = [norm(a, w[f"{p}self_attn.q_norm.weight"], eps) for a in qs]
                ks = [norm(a, w[f"{p}self_attn.k_norm.weight"], eps) for a in ks]
            qs, ks = [turn(a, i) for i, a in enumerate(qs)], [turn(a, i) for i, a in enumerate(ks)]
            for i in range(n):
                scores = torch.stack([qs[i] @ ks[j] for j in range(i + 1)]) / d**0.5
                out[i, head] = scores.softmax(0) @ v[: i + 1, part]
        o = out.flatten(1) @ w[p + "self_attn.o_proj.weight"].T
        x = x + o + w.get(p + "self_attn.o_proj.bias", torch.zeros(()))
        h = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ w[p + "mlp.down_proj.weight"].T
        residuals.append(x)
    head_weight = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return norm(x, w["model.norm.weight"], eps) @ head_weight.T, residuals


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_taps_equal_the_literal_forward(tmp_path: Path, variant: str) -> None:
    folder = tiny_pair(tmp_path, vocab=12, **VARIANTS[variant])[0]  # type: ignore[arg-type]
    target = Target(folder, 64, torch.float32, CPU)
    logits, features = target.forward([Span(target.new_cache(8), chain(PROMPT[0], PROMPT[1:]), 0)], (2, 0))
    expected, residuals = literal(folder, PROMPT)
    assert close(logits, expected)
    assert features is not None
    assert close(features, torch.cat([residuals[2], residuals[0]], -1))


@pytest.mark.parametrize("split", [1, 3, 7])
def test_a_cached_prefix_changes_nothing(tmp_path: Path, split: int) -> None:
    folder = tiny_pair(tmp_path, vocab=12)[0]
    target = Target(folder, 64, torch.float32, CPU)
    cache = target.new_cache(8)
    target.forward([Span(cache, chain(PROMPT[0], PROMPT[1:split]), split - 1)])
    cache.commit(list(range(split)))
    logits, _ = target.forward([Span(cache, chain(PROMPT[split], PROMPT[split + 1 :]), 0)])
    assert close(logits, literal(folder, PROMPT)[0][split:])


def test_every_tree_node_gets_the_logits_of_its_own_path_and_so_does_what_follows(tmp_path: Path) -> None:
    folder = tiny_pair(tmp_path, vocab=12)[0]
    target = Target(folder, 64, torch.float32, CPU)
    tree = Tree((5, 6, 7, 8, 6, 9, 10), (-1, 0, 0, 1, 2, 4, 3), (0, 1, 1, 2, 2, 3, 3))
    paths = [[5], [5, 6], [5, 7], [5, 6, 8], [5, 7, 6], [5, 7, 6, 9], [5, 6, 8, 10]]
    other = target.new_cache(20)  # a second request in the same batch must not be seen
    cache = target.new_cache(20)
    target.forward([Span(cache, chain(PROMPT[0], PROMPT[1:]), 7)])
    cache.commit(list(range(8)))
    logits, _ = target.forward([Span(other, chain(3, (3, 3)), 0), Span(cache, tree, 0)])
    for node, path in enumerate(paths):
        assert close(logits[3 + node], literal(folder, PROMPT + path)[0][-1])
    cache.commit([0, 2, 4, 5])
    logits, _ = target.forward([Span(cache, chain(11, ()), 0)])
    assert close(logits[0], literal(folder, [*PROMPT, 5, 7, 6, 9, 11])[0][-1])


def test_sharded_checkpoints_load(tmp_path: Path) -> None:
    folder = tiny_pair(tmp_path, vocab=12)[0]
    whole = Target(folder, 64, torch.float32, CPU)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, keys in shards.items():
        save_file({k: tensors[k] for k in keys}, folder / shard)
    index = {"weight_map": {k: shard for shard, keys in shards.items() for k in keys}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sharded = Target(folder, 64, torch.float32, CPU)
    span = chain(PROMPT[0], PROMPT[1:])
    a, b = (t.forward([Span(t.new_cache(8), span, 0)])[0] for t in (whole, sharded))
    assert torch.equal(a, b)
