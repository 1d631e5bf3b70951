"""A tiny random Llama target and DFlash drafter on disk, for tests that need an engine but no language model."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
EOS = 2
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_pair(
    folder: Path,
    vocab: int = 320,
    hidden: int = 32,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 8,
    ff: int = 48,
    block: int = 8,
    draft_layers: int = 2,
    taps: tuple[int, ...] = (0, 2),
    context: int = 4096,
    seed: int = 0,
    **config: object,
) -> tuple[Path, Path]:
    """Write `folder/target` (HF layout, ChatML byte-level tokenizer) and `folder/drafter` (z-lab layout); return both.

    Token 2 is the end of a turn. With a vocabulary below 259 the tokenizer lacks some bytes, which it then drops.
    `config` overrides keys of the target's config.json (e.g. tie_word_embeddings, attention_bias, model_type).
    """
    generator = torch.Generator().manual_seed(seed)
    shape = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": ff,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
    }
    target_config = {
        **shape,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "torch_dtype": "float32",
        **config,
    }
    qk_norm = target_config["model_type"] == "qwen3"
    weights = {
        "model.embed_tokens.weight": torch.randn(vocab, hidden, generator=generator),
        "model.norm.weight": _around_one(hidden, generator),
    }
    for i in range(layers):
        bias = bool(target_config["attention_bias"])
        weights |= _layer(f"model.layers.{i}.", hidden, ff, heads, kv_heads, head_dim, qk_norm, bias, generator)
    if not target_config["tie_word_embeddings"]:
        weights["lm_head.weight"] = torch.randn(vocab, hidden, generator=generator)
    target = _write(folder / "target", target_config, weights)
    _write_tokenizer(target, vocab)

    drafter_config = {
        **shape,
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": draft_layers,
        "num_target_layers": layers,
        "attention_bias": False,
        "block_size": block,
        "dflash_config": {"mask_token_id": 0, "target_layer_ids": list(taps)},
        "layer_types": ["full_attention"] * draft_layers,
    }
    weights = {
        "fc.weight": _matrix(hidden, hidden * len(taps), generator),
        "hidden_norm.weight": _around_one(hidden, generator),
        "norm.weight": _around_one(hidden, generator),
    }
    for i in range(draft_layers):
        weights |= _layer(f"layers.{i}.", hidden, ff, heads, kv_heads, head_dim, True, False, generator)
    return target, _write(folder / "drafter", drafter_config, weights)


def _layer(
    prefix: str,
    hidden: int,
    ff: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    qk_norm: bool,
    bias: bool,
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    rows = {"q_proj": heads * head_dim, "k_proj": kv_heads * head_dim, "v_proj": kv_heads * head_dim}
    out = {f"self_attn.{name}.weight": _matrix(n, hidden, generator) for name, n in rows.items()}
    if bias:
        out |= {f"self_attn.{name}.bias": torch.randn(n, generator=generator) * 0.5 for name, n in rows.items()}
        out["self_attn.o_proj.bias"] = torch.randn(hidden, generator=generator) * 0.1
    if qk_norm:
        out |= {f"self_attn.{name}.weight": _around_one(head_dim, generator) for name in ("q_norm", "k_norm")}
    out |= {
        "self_attn.o_proj.weight": _matrix(hidden, heads * head_dim, generator),
        "mlp.gate_proj.weight": _matrix(ff, hidden, generator),
        "mlp.up_proj.weight": _matrix(ff, hidden, generator),
        "mlp.down_proj.weight": _matrix(hidden, ff, generator),
        "input_layernorm.weight": _around_one(hidden, generator),
        "post_attention_layernorm.weight": _around_one(hidden, generator),
    }
    return {prefix + name: tensor for name, tensor in out.items()}


def _matrix(rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(rows, columns, generator=generator) * 1.5 / columns**0.5


def _around_one(n: int, generator: torch.Generator) -> torch.Tensor:
    return 1 + 0.1 * torch.randn(n, generator=generator)


def _write(folder: Path, config: dict[str, object], weights: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file({k: v.contiguous() for k, v in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def _write_tokenizer(folder: Path, vocab: int) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *alphabet, *(f"<|unused{i}|>" for i in range(vocab))][:vocab]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "model_max_length": 4096,
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=1))
