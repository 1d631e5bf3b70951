"""GGUF file of a Llama-type model -> Hugging Face folder in float32. Needs gguf and safetensors, no torch."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddtree.models.errors import ModelError

VERSION = 1  # of this conversion: a folder made by another one is made again

# ChatML, for a chat model whose file carries no template.
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL = 3  # GGUF's token type of special tokens


def convert(source: Path, folder: Path) -> None:
    """Write `folder` (config, weights, tokenizer, generation config); it appears at once or not at all.

    Raises ModelError for another architecture, tokenizer, quantisation or tensor than a plain Llama model has.
    """
    from gguf import GGUFReader
    from safetensors.numpy import save_file

    try:
        reader = GGUFReader(source)
    except (OSError, ValueError) as e:
        raise ModelError(f"{source}: not a GGUF file: {e}") from None
    meta = {key: field.contents() for key, field in reader.fields.items()}
    config = _config(source, meta, tied=not any(t.name == "output.weight" for t in reader.tensors))
    tokenizer = _tokenizer(source, meta)

    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        save_file(_weights(source, reader.tensors, config), aside / "model.safetensors", {"format": "pt"})
        tokenizer.save(str(aside / "tokenizer.json"))
        for name, content in {
            "config.json": config,
            "generation_config.json": {k: v for k, v in config.items() if k.endswith("_token_id")},
            "tokenizer_config.json": _tokenizer_config(meta, config),
        }.items():
            (aside / name).write_text(json.dumps(content, indent=1) + "\n")
        (aside / "model.safetensors").chmod(0o644)  # save_file leaves it private to its owner
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _config(source: Path, meta: dict[str, Any], tied: bool) -> dict[str, Any]:
    if (architecture := meta.get("general.architecture")) != "llama":
        raise ModelError(f"{source}: architecture {architecture} is not supported; allowed: llama")

    def get(key: str) -> Any:
        try:
            return meta[key]
        except KeyError:
            raise ModelError(f"{source}: has no {key}") from None

    heads = get("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": get("llama.embedding_length"),
        "intermediate_size": get("llama.feed_forward_length"),
        "num_hidden_layers": get("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get("llama.attention.head_count_kv", heads),
        "head_dim": meta.get("llama.rope.dimension_count", get("llama.embedding_length") // heads),
        "vocab_size": len(get("tokenizer.ggml.tokens")),
        "max_position_embeddings": get("llama.context_length"),
        # GGUF keeps float32: print the shortest decimal that is the same float32, i.e. 1e-05 and not 9.99999975e-06
        "rms_norm_eps": float(str(np.float32(get("llama.attention.layer_norm_rms_epsilon")))),
        "rope_theta": float(meta.get("llama.rope.freq_base", 10000.0)),
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "tie_word_embeddings": tied,
        "initializer_range": 0.02,
        "use_cache": True,
        "dtype": "float32",
        "torch_dtype": "float32",  # the same, for Transformers 4
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id"),
    }


def _weights(source: Path, tensors: list[Any], config: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    from gguf.quants import dequantize

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights = {}
    for tensor in tensors:
        try:
            weight = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        except NotImplementedError:
            raise ModelError(f"{source}: {tensor.name} has type {tensor.tensor_type.name}, unknown to gguf") from None
        if tensor.name in _TOP:
            weights[_TOP[tensor.name]] = weight
            continue
        parts = tensor.name.split(".")
        if len(parts) != 4 or parts[0] != "blk" or parts[3] != "weight" or parts[2] not in _LAYER:
            raise ModelError(f"{source}: tensor {tensor.name} does not belong to a plain Llama model")
        if parts[2] in heads:
            weight = _half_split(weight, heads[parts[2]])
        weights[f"model.layers.{parts[1]}.{_LAYER[parts[2]]}.weight"] = weight
    expected = 9 * config["num_hidden_layers"] + 2 + (not config["tie_word_embeddings"])
    if len(weights) != expected:
        raise ModelError(f"{source}: holds {len(weights)} tensors where its configuration asks for {expected}")
    return weights


def _half_split(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """(heads * d, in), rotary pairs as neighbouring rows (GGUF) -> rows i and i + d/2 (Hugging Face)."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))


def _tokenizer(source: Path, meta: dict[str, Any]) -> Any:
    """Byte-level BPE as `tokenizers.Tokenizer`; `pre` names the splitting that runs before the merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    known = {
        "gpt-2": byte_level,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]),
    }
    model, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "gpt-2")
    if model != "gpt2" or pre not in known:
        raise ModelError(f"{source}: tokenizer {model}/{pre} is not supported; allowed: gpt2 with {' or '.join(known)}")
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = known[pre]
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, meta["tokenizer.ggml.token_type"], strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def _tokenizer_config(meta: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    tokens = meta["tokenizer.ggml.tokens"]
    ids = {
        "bos_token": config["bos_token_id"],
        "eos_token": config["eos_token_id"],
        "pad_token": config["pad_token_id"],
        "unk_token": meta.get("tokenizer.ggml.unknown_token_id"),
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": meta.get("tokenizer.chat_template", CHATML),
        **{name: tokens[i] for name, i in ids.items() if i is not None},
    }
