"""The target's tokenizer with its chat template and stop tokens, from a Hugging Face folder; needs no Transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import tokenizers
from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ddtree.models.convert import CHATML
from ddtree.models.errors import ModelError
from ddtree.models.files import read_config


class Message(TypedDict):
    role: str
    content: str


class Tokenizer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{path}: no such file")
        try:
            self.inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as e:  # the library raises bare Exception
            raise ModelError(f"{path}: not a tokenizer: {e}") from None
        described = folder / "tokenizer_config.json"
        self.config: dict[str, Any] = json.loads(described.read_text()) if described.is_file() else {}

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Token ids. Names of special tokens inside the text become those tokens."""
        ids: list[int] = self.inner.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def ends(self, text: str) -> list[int]:
        """Character offset at which each token of `text` ends."""
        return [end for _, end in self.inner.encode(text, add_special_tokens=False).offsets]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        text: str = self.inner.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def chat(self, messages: Sequence[Message]) -> str:
        """The conversation as text, up to where the assistant's reply begins. ModelError if the template refuses."""
        special = {k: _content(v) for k, v in self.config.items() if k.endswith("_token") and v is not None}
        try:
            return self._template.render(messages=list(messages), add_generation_prompt=True, **special)
        except TemplateError as e:
            raise ModelError(f"{self.folder}: the chat template refuses these messages: {e}") from None

    @cached_property
    def stop_token_ids(self) -> list[int]:
        """Every token that ends a turn: eos of the generation config, of the model's config and of the tokenizer."""
        found: set[Any] = set()
        generation = self.folder / "generation_config.json"
        configs = [read_config(self.folder), json.loads(generation.read_text()) if generation.is_file() else {}]
        for config in configs:
            eos = config.get("eos_token_id")
            found.update(eos if isinstance(eos, list) else [] if eos is None else [eos])
        if eos_token := _content(self.config.get("eos_token")):
            found.add(self.inner.token_to_id(eos_token))
        return sorted(found - {None})

    @cached_property
    def added_tokens(self) -> list[str]:
        """Tokens beside the learned vocabulary, special ones included, in the order of their ids."""
        return [token.content for _, token in sorted(self.inner.get_added_tokens_decoder().items())]

    @cached_property
    def chat_template(self) -> str:
        own = self.folder / "chat_template.jinja"
        source = own.read_text() if own.is_file() else self.config.get("chat_template", CHATML)
        if isinstance(source, list):  # several named templates
            source = {entry["name"]: entry["template"] for entry in source}["default"]
        return str(source)

    @cached_property
    def _template(self) -> Any:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.globals["raise_exception"] = _refuse
        return environment.from_string(self.chat_template)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _content(token: Any) -> Any:
    """tokenizer_config.json writes a special token as a string or as an object with its content."""
    return token["content"] if isinstance(token, dict) else token
