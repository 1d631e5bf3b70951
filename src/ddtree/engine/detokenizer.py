"""Token ids into text as they come: only whole characters leave, and the work per token does not grow."""

from __future__ import annotations

import codecs
import json
from typing import Protocol

from tokenizers.decoders import DecodeStream

from ddtree.models import Tokenizer


class Detokenizer(Protocol):
    def push(self, token: int) -> str:
        """The characters that `token` completes, possibly none."""

    def flush(self) -> str:
        """What is left when no token follows: the replacement character for an unfinished one."""


class Vocabulary:
    """A tokenizer prepared for streaming; shared by all requests."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._inner = tokenizer.inner
        self._byte_level = (json.loads(self._inner.to_str())["decoder"] or {}).get("type") == "ByteLevel"
        self._added = self._inner.get_added_tokens_decoder()
        self._known: dict[int, bytes] = {}

    def detokenizer(self) -> Detokenizer:
        return _ByteLevel(self) if self._byte_level else _Generic(self)

    def bytes_of(self, token: int) -> bytes:
        """What a byte-level token stands for; special and unknown tokens stand for nothing."""
        if token not in self._known:
            self._known[token] = self._look_up(token)
        return self._known[token]

    def step(self, stream: DecodeStream, token: int) -> str:
        return stream.step(self._inner, token) or ""

    def _look_up(self, token: int) -> bytes:
        if (added := self._added.get(token)) is not None:
            return b"" if added.special else str(added.content).encode()
        name = self._inner.id_to_token(token) or ""
        if all(character in _BYTES for character in name):
            return bytes(_BYTES[character] for character in name)
        return name.encode()


class _ByteLevel:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._utf8.decode(self._vocabulary.bytes_of(token))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class _Generic:
    """Any other decoder: the library's own stream, which decodes a short window again for every token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._stream = DecodeStream(skip_special_tokens=True)

    def push(self, token: int) -> str:
        return self._vocabulary.step(self._stream, token)

    def flush(self) -> str:
        return ""


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letters for bytes: printable Latin-1 stands for itself, the rest follows from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_alphabet()
