"""What the tiny model learns from: the source of some modules of Python's own library, under the PSF licence."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

MODULES = ("argparse", "collections", "csv", "dataclasses", "enum", "heapq", "inspect", "json.decoder", "json.encoder",
           "random", "statistics", "string", "textwrap", "zipfile")  # fmt: skip
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END_OF_TURN = 2
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def corpus() -> str:
    return "\n".join(inspect.getsource(importlib.import_module(name)) for name in MODULES)


def make_tokenizer(text: str, vocab: int) -> Tokenizer:
    """Byte-level BPE of `vocab` tokens, the three special ones first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """tokenizer.json and tokenizer_config.json, with ChatML as the chat template."""
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "model_max_length": context,
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=1) + "\n")
