"""safetensors files read and written tensor by tensor: only one is in memory at a time, bfloat16 included, no torch.

The format: eight bytes with the header's length, a JSON header (name -> dtype, shape, data_offsets), the data
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ddtree.models.errors import ModelError

Dtype = Literal["float32", "bfloat16"]
Array = NDArray[np.float32]
SHARD_BYTES = 3_900_000_000  # some file systems and upload tools stop at 4 GB
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_CODES: dict[Dtype, str] = {"float32": "F32", "bfloat16": "BF16"}


@dataclass(frozen=True)
class Entry:
    """A tensor to be written; `make` gives it when its turn comes."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[], Array]


class Reader:
    """The tensors of all *.safetensors files of a folder, as float32."""

    def __init__(self, folder: Path) -> None:
        self._entries: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                if entry["dtype"] not in _BYTES:
                    allowed = ", ".join(_BYTES)
                    raise ModelError(
                        f"{path}: {name} has dtype {entry['dtype']}, which is not supported; allowed: {allowed}"
                    )
                self._entries[name] = (path, 8 + length, entry)

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._entries[name][2]["shape"])

    def read(self, name: str) -> Array:
        path, start, entry = self._entries[name]
        kind: str = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[entry["dtype"]]
        count = math.prod(entry["shape"])
        flat = np.fromfile(path, kind, count, offset=start + entry["data_offsets"][0]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return flat.astype(np.float32)


def to_bfloat16(array: Array) -> NDArray[np.uint16]:
    """Bits of the nearest bfloat16, ties to even, as torch and CUDA round. NaN does not occur in weights."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)


def write(folder: Path, entries: Sequence[Entry], dtype: Dtype, shard_bytes: int = SHARD_BYTES) -> None:
    """One file, or several of at most `shard_bytes` with the index that Hugging Face libraries look for."""
    size = _BYTES[_CODES[dtype]]
    shards: list[list[Entry]] = [[]]
    filled = 0
    for entry in entries:
        bytes_ = math.prod(entry.shape) * size
        if shards[-1] and filled + bytes_ > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(entry)
        filled += bytes_
    if len(shards) == 1:
        _write_file(folder / "model.safetensors", shards[0], dtype)
        return
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        _write_file(folder / name, shard, dtype)
    index = {
        "metadata": {"total_size": sum(math.prod(entry.shape) for entry in entries) * size},
        "weight_map": {entry.name: name for name, shard in zip(names, shards, strict=True) for entry in shard},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def _write_file(path: Path, entries: Sequence[Entry], dtype: Dtype) -> None:
    code, header, end = _CODES[dtype], dict[str, object](), 0
    for entry in entries:
        start, end = end, end + math.prod(entry.shape) * _BYTES[code]
        header[entry.name] = {"dtype": code, "shape": entry.shape, "data_offsets": [start, end]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry in entries:
            array = entry.make()
            assert array.shape == entry.shape, entry.name
            (to_bfloat16(array) if dtype == "bfloat16" else np.ascontiguousarray(array, "<f4")).tofile(file)
