from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_forward import close, norm
from tiny import tiny_pair

from ddtree.engine.drafter import Candidates, Drafter
from ddtree.engine.target import Target

BLOCK, DEPTH, TOPK = 6, 4, 12


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tiny_pair(tmp_path_factory.mktemp("drafter"), vocab=12, block=BLOCK)


def load(folders: tuple[Path, Path], window: int | None = None) -> Drafter:
    target = Target(folders[0], 128, torch.float32, torch.device("cpu"))
    return Drafter(folders[1], target, window, 128)


def features(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 64, generator=torch.Generator().manual_seed(seed))


def dense(found: Candidates) -> torch.Tensor:
    """All log-probs [depth, vocab]; TOPK is the whole vocabulary here."""
    out = torch.empty(len(found.tokens), 12)
    return out.scatter_(1, torch.tensor(found.tokens), torch.tensor(found.log_probs))


def literal(folders: tuple[Path, Path], context: torch.Tensor, first: int, anchor: int) -> torch.Tensor:
    """Log-probs [BLOCK - 1, vocab] after `anchor`, given context features [n, taps * hidden] at positions first.. ."""
    c = json.loads((folders[1] / "config.json").read_text())
    w = {k: v.double() for k, v in load_file(folders[1] / "model.safetensors").items()}
    emb = load_file(folders[0] / "model.safetensors")["model.embed_tokens.weight"].double()
    d, heads, groups, eps = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    known = norm(context.double() @ w["fc.weight"].T, w["hidden_norm.weight"], eps)
    x = emb[[anchor] + [c["dflash_config"]["mask_token_id"]] * (BLOCK - 1)]
    at = torch.arange(first, first + len(known) + BLOCK, dtype=torch.float64)
    angle = at[:, None] * c["rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)

    def turn(y: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        a, b = y[..., : d // 2], y[..., d // 2 :]
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    for i in range(c["num_hidden_layers"]):
        p = f"layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"], eps)
        both = torch.cat([known, h])
        q = (h @ w[p + "self_attn.q_proj.weight"].T).view(-1, heads, d)
        k = (both @ w[p + "self_attn.k_proj.weight"].T).view(-1, groups, d)
        v = (both @ w[p + "self_attn.v_proj.weight"].T).view(-1, groups, d).repeat_interleave(heads // groups, 1)
        q = turn(norm(q, w[p + "self_attn.q_norm.weight"], eps), angle[len(known) :])
        k = turn(norm(k, w[p + "self_attn.k_norm.weight"], eps), angle).repeat_interleave(heads // groups, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / d**0.5
        o = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
        x = x + o @ w[p + "self_attn.o_proj.weight"].T
        h = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ w[p + "mlp.down_proj.weight"].T
    return (norm(x[1:], w["norm.weight"], eps) @ emb.T).log_softmax(-1)


@pytest.mark.parametrize("pieces", [[9], [1, 1, 1, 6], [4, 5]])
def test_drafts_equal_the_literal_forward_however_the_context_came(
    folders: tuple[Path, Path], pieces: list[int]
) -> None:
    drafter, f = load(folders), features(9)
    context = drafter.new_context(20)
    for part in f.split(pieces):
        drafter.extend([context], [part])
        drafter.draft([context], [1], DEPTH, TOPK)  # a draft must leave nothing behind
    found = dense(drafter.draft([context], [5], DEPTH, TOPK)[0])
    assert close(found, literal(folders, f, 0, 5)[:DEPTH])


@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize("pieces", [[17], [1] * 17, [2, 12, 3]])
def test_a_window_of_w_sees_the_last_w_context_tokens_only(
    folders: tuple[Path, Path], window: int, pieces: list[int]
) -> None:
    drafter, f = load(folders, window), features(17)
    context = drafter.new_context(100)
    for part in f.split(pieces):
        drafter.extend([context], [part])
    found = dense(drafter.draft([context], [5], DEPTH, TOPK)[0])
    assert close(found, literal(folders, f[-window:], 17 - window, 5)[:DEPTH])
    assert context.k.shape[2] == BLOCK + window  # memory is bounded by the window, not by the context


def test_requests_are_drafted_together_as_they_are_alone(folders: tuple[Path, Path]) -> None:
    drafter = load(folders)
    alone, together = [], [drafter.new_context(20) for _ in range(3)]
    parts = [features(n, seed=n) for n in (1, 7, 12)]
    drafter.extend(together, parts)
    for part in parts:
        context = drafter.new_context(20)
        drafter.extend([context], [part])
        alone.append(dense(drafter.draft([context], [len(part) % 12], DEPTH, TOPK)[0]))
    anchors = [len(part) % 12 for part in parts]
    for a, b in zip(alone, drafter.draft(together, anchors, DEPTH, TOPK), strict=True):
        assert close(a, dense(b))


def test_candidates_are_sorted_and_cut_to_the_best(folders: tuple[Path, Path]) -> None:
    drafter = load(folders)
    context = drafter.new_context(20)
    drafter.extend([context], [features(9)])
    full = drafter.draft([context], [5], DEPTH, TOPK)[0]
    for row in full.log_probs:
        assert row == sorted(row, reverse=True)
        assert row[0] <= 0
    three = drafter.draft([context], [5], DEPTH, 3)[0]
    assert three == Candidates([r[:3] for r in full.tokens], [r[:3] for r in full.log_probs])
    assert drafter.draft([context], [5], DEPTH, 1)[0].tokens == [r[:1] for r in full.tokens]


def test_the_checkpoints_own_window_is_the_default(folders: tuple[Path, Path], tmp_path: Path) -> None:
    pair = tiny_pair(tmp_path, vocab=12, block=BLOCK)
    path = pair[1] / "config.json"
    sliding = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 5}
    path.write_text(json.dumps(json.loads(path.read_text()) | sliding))
    assert load(pair).window == 5
    assert load(pair, window=3).window == 3
    assert load(folders).window is None
