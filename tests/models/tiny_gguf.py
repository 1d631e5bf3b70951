"""A tiny Llama GGUF as llama.cpp's converter would write it, and the weights that went into it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefghijklmnopqrstuvwxyz0123456789", "Ġ", "Ċ", "ab", "Ġa"]
MERGES = ["a b", "Ġ a"]
SHAPE = {"layers": 2, "hidden": 16, "ff": 24, "heads": 4, "kv_heads": 2, "head_dim": 4}


def write(path: Path, tied: bool = True, pre: str = "smollm", architecture: str = "llama") -> dict[str, NDArray]:
    """Weights by their Hugging Face names, in Hugging Face row order."""
    rng, hidden, kv = np.random.default_rng(0), SHAPE["hidden"], SHAPE["kv_heads"] * SHAPE["head_dim"]

    def matrix(rows: int, columns: int) -> NDArray:
        return rng.normal(size=(rows, columns)).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(len(TOKENS), hidden), "model.norm.weight": matrix(1, hidden)[0]}
    if not tied:
        weights["lm_head.weight"] = matrix(len(TOKENS), hidden)
    names = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm", "lm_head.weight": "output"}
    for i in range(SHAPE["layers"]):
        layer = {
            "input_layernorm": ("attn_norm", matrix(1, hidden)[0]),
            "self_attn.q_proj": ("attn_q", matrix(hidden, hidden)),
            "self_attn.k_proj": ("attn_k", matrix(kv, hidden)),
            "self_attn.v_proj": ("attn_v", matrix(kv, hidden)),
            "self_attn.o_proj": ("attn_output", matrix(hidden, hidden)),
            "post_attention_layernorm": ("ffn_norm", matrix(1, hidden)[0]),
            "mlp.gate_proj": ("ffn_gate", matrix(SHAPE["ff"], hidden)),
            "mlp.up_proj": ("ffn_up", matrix(SHAPE["ff"], hidden)),
            "mlp.down_proj": ("ffn_down", matrix(hidden, SHAPE["ff"])),
        }
        for name, (short, weight) in layer.items():
            weights[f"model.layers.{i}.{name}.weight"] = weight
            names[f"model.layers.{i}.{name}.weight"] = f"blk.{i}.{short}"

    writer = GGUFWriter(path, architecture)
    writer.add_block_count(SHAPE["layers"])
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(SHAPE["ff"])
    writer.add_head_count(SHAPE["heads"])
    writer.add_head_count_kv(SHAPE["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(SHAPE["head_dim"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, weight in weights.items():
        heads = {"q_proj": SHAPE["heads"], "k_proj": SHAPE["kv_heads"]}.get(name.split(".")[-2])
        writer.add_tensor(names[name] + ".weight", interleaved(weight, heads) if heads else weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def interleaved(weight: NDArray, heads: int) -> NDArray:
    """llama.cpp's row order, element by element: row i of a head's half h becomes row 2 * i + h."""
    rows = weight.shape[0] // heads
    out = np.empty_like(weight)
    for head in range(heads):
        for i in range(rows // 2):
            for half in range(2):
                out[head * rows + 2 * i + half] = weight[head * rows + half * (rows // 2) + i]
    return out
