from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_gguf
from safetensors.numpy import load_file

from ddtree.models import ModelError, ModelFiles, Tokenizer
from ddtree.models.convert import convert


@pytest.mark.parametrize("tied", [True, False])
def test_every_weight_arrives_under_its_name_and_in_its_row_order(tmp_path: Path, tied: bool) -> None:
    expected = tiny_gguf.write(tmp_path / "tiny.gguf", tied=tied)
    convert(tmp_path / "tiny.gguf", tmp_path / "target")
    found = load_file(tmp_path / "target" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight, err_msg=name)


def test_configuration_says_what_the_file_says(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "tiny.gguf", tied=False)
    convert(tmp_path / "tiny.gguf", tmp_path / "target")
    config = json.loads((tmp_path / "target" / "config.json").read_text())
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "vocab_size": len(tiny_gguf.TOKENS),
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
    }
    assert {key: config[key] for key in expected} == expected


def test_tokenizer_merges_splits_digits_and_knows_special_tokens(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "tiny.gguf")
    convert(tmp_path / "tiny.gguf", tmp_path / "target")
    tokenizer = Tokenizer(tmp_path / "target")
    text = "<|im_start|>cab a12\n<|im_end|>"
    ids = tokenizer.encode(text)
    assert [tiny_gguf.TOKENS[i] for i in ids] == ["<|im_start|>", "c", "ab", "Ġa", "1", "2", "Ċ", "<|im_end|>"]
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == "cab a12\n"
    assert tokenizer.stop_token_ids == [2]


def test_chat_template_falls_back_to_chatml(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "tiny.gguf")
    convert(tmp_path / "tiny.gguf", tmp_path / "target")
    text = Tokenizer(tmp_path / "target").chat([{"role": "user", "content": "a"}])
    assert text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"pre": "llama-bpe"}, "tokenizer gpt2/llama-bpe"), ({"architecture": "mamba"}, "architecture mamba")],
)
def test_what_is_not_supported_is_refused_by_name_and_leaves_nothing(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    tiny_gguf.write(tmp_path / "tiny.gguf", **options)
    with pytest.raises(ModelError, match=message) as caught:
        convert(tmp_path / "tiny.gguf", tmp_path / "target")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not a model" * 100)
    with pytest.raises(ModelError, match=r"x\.gguf: not a GGUF file"):
        convert(tmp_path / "x.gguf", tmp_path / "target")


@pytest.mark.model
def test_smollm2_has_its_shapes_and_its_tokenizer(smollm2: ModelFiles) -> None:
    from safetensors import safe_open

    with safe_open(smollm2.target / "model.safetensors", "numpy") as weights:
        shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
    assert len(shapes) == 272
    assert shapes["model.embed_tokens.weight"] == [49152, 576]
    assert shapes["model.layers.29.self_attn.k_proj.weight"] == [192, 576]
    assert shapes["model.layers.0.mlp.down_proj.weight"] == [576, 1536]
    tokenizer = Tokenizer(smollm2.target)
    text = "def f(x):\n    return 2024 * x  # héllo 你好 🙂\n"
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text
    # The reference tokenizer's ids of a ChatML turn.
    assert tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n") == [1, 4093, 198, 26843, 2, 198]
    assert tokenizer.stop_token_ids == [2]
