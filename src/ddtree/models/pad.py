"""Cost-padded pairs: a target and its DFlash drafter that answer exactly as before and cost more to run.

A small model is bound by kernel launches, not by memory, so its speed-ups tell little about those of a large one. This
widens it with zeros and deepens it with identity layers: every token, and so every acceptance, stays what it was, while
a forward pass reads as many bytes as that of a model with billions of parameters. It is no better model, and nothing
but its cost is new.

Width factor w (a power of four). The first H of the wH residual channels carry the old values, the others stay zero:

* RMS norm: the mean square over wH channels is the old one / w. With eps / w the root is the old one / sqrt(w), which
  weight / sqrt(w) undoes; sqrt(w) is a power of two, so every scaling is exact in any floating-point format. What is
  left is the order in which a kernel sums the longer rows.
* Projections gain zero rows and columns. New heads see zero queries, keys and values and yield zero; there are as many
  more as keep the group ratio and make the K/V heads a multiple of 8, for tensor parallelism.
* Per-head norms of queries and keys (Qwen3) keep their length but share eps: q and k are scaled by 1 / sqrt(w), which
  that norm takes out again.

Depth factor m: behind every layer stand m - 1 copies of it whose output projections are zero, so that they read and
compute as much and add nothing to the residual stream. The drafter's taps move to the same old layers.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ddtree.files import write_atomically
from ddtree.models import tensors
from ddtree.models.errors import ModelError
from ddtree.models.files import checkpoint_sha256, read_config
from ddtree.models.tensors import Array, Entry, Reader
from ddtree.plan.schema import Pad

VERSION = 1  # of this construction: a folder made by another one is made again
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
HEAD_MULTIPLE = 8
STAMP = "padding.json"


@dataclass(frozen=True)
class Shape:
    """Sizes of one model, before and after: (old, new)."""

    hidden: tuple[int, int]
    intermediate: tuple[int, int]
    heads: tuple[int, int]
    kv_heads: tuple[int, int]
    head_dim: int
    width: int

    @classmethod
    def of(cls, config: dict[str, Any], path: Path, width: int) -> Shape:
        """ModelError for an architecture whose outputs this would change."""
        if (
            config.get("model_type") not in ARCHITECTURES
            or config.get("num_experts")
            or config.get("num_local_experts")
        ):
            kind, allowed = config.get("model_type"), ", ".join(ARCHITECTURES)
            raise ModelError(f"{path}: model_type {kind} cannot be padded; allowed: dense {allowed}")
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        kv_heads = config.get("num_key_value_heads") or heads
        more = math.ceil(width * kv_heads / HEAD_MULTIPLE) * HEAD_MULTIPLE
        return cls(
            hidden=(hidden, width * hidden),
            intermediate=(config["intermediate_size"], width * config["intermediate_size"]),
            heads=(heads, heads // kv_heads * more),
            kv_heads=(kv_heads, more),
            head_dim=config.get("head_dim") or hidden // heads,
            width=width,
        )

    def config(self) -> dict[str, object]:
        return {
            "hidden_size": self.hidden[1],
            "intermediate_size": self.intermediate[1],
            "num_attention_heads": self.heads[1],
            "num_key_value_heads": self.kv_heads[1],
            "head_dim": self.head_dim,
        }


def pad(target: Path, drafter: Path | None, out: Path, how: Pad) -> tuple[Path, Path | None]:
    """Write `out`/target and `out`/drafter; kept when they were made from the same files in the same way.

    Raises ModelError (one line) for a model that cannot be padded.
    """
    stamp = {
        "version": VERSION,
        "pad": how.model_dump(),
        "target": checkpoint_sha256(target),
        "drafter": checkpoint_sha256(drafter) if drafter else None,
    }
    folders = out / "target", out / "drafter" if drafter else None
    if (out / STAMP).is_file() and json.loads((out / STAMP).read_text()) == stamp:
        return folders
    (out / STAMP).unlink(missing_ok=True)
    _write(target, folders[0], how, _target_config, deep=how.layers)
    if drafter and folders[1]:
        _write(drafter, folders[1], how, _drafter_config, deep=1)
    write_atomically(out / STAMP, json.dumps(stamp, indent=1) + "\n")
    return folders


def _write(
    source: Path, folder: Path, how: Pad, more: Callable[[dict[str, Any], int], dict[str, object]], deep: int
) -> None:
    config, reader = read_config(source), Reader(source)
    shape = Shape.of(config, source / "config.json", how.width)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        for path in source.iterdir():
            if path.is_file() and path.suffix in (".json", ".jinja", ".txt", ".model") and "index" not in path.name:
                shutil.copyfile(path, aside / path.name)
        changed = shape.config() | {
            "rms_norm_eps": config["rms_norm_eps"] / how.width,
            "dtype": how.dtype,
            "torch_dtype": how.dtype,
        }
        changed |= more(config, how.layers)
        (aside / "config.json").write_text(json.dumps(config | changed, indent=1) + "\n")
        tensors.write(aside, list(_entries(reader, shape, source, deep)), how.dtype)
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _target_config(config: dict[str, Any], layers: int) -> dict[str, object]:
    deeper: dict[str, object] = {"num_hidden_layers": layers * config["num_hidden_layers"]}
    if config.get("layer_types"):
        deeper["layer_types"] = [kind for kind in config["layer_types"] for _ in range(layers)]
    return deeper


def _drafter_config(config: dict[str, Any], layers: int) -> dict[str, object]:
    own = config["dflash_config"]
    deeper: dict[str, object] = {
        "dflash_config": own | {"target_layer_ids": [layers * i for i in own["target_layer_ids"]]}
    }
    if "num_target_layers" in config:
        deeper["num_target_layers"] = layers * config["num_target_layers"]
    return deeper


def _entries(reader: Reader, shape: Shape, source: Path, deep: int) -> Iterator[Entry]:
    normed = {name.split("self_attn.")[0] for name in reader.names if name.endswith("self_attn.q_norm.weight")}
    for name in reader.names:
        before, layer, part = _split(name)
        scaled = layer is not None and f"{before}{layer}." in normed
        entry = _padded(name, part, reader, shape, source, scaled)
        if layer is None:
            yield entry
            continue
        for copy in range(deep):
            renamed = f"{before}{deep * layer + copy}.{part}"
            # A copy adds nothing to the residual stream: what it would add is made zero.
            silent = copy > 0 and part.split(".")[-2] in ("o_proj", "down_proj")
            make = partial(_zeros, entry.shape) if silent else entry.make
            yield Entry(renamed, entry.shape, make)


def _split(name: str) -> tuple[str, int | None, str]:
    """'model.layers.3.mlp.up_proj.weight' -> ('model.layers.', 3, 'mlp.up_proj.weight')."""
    before, found, after = name.partition("layers.")
    number, _, part = after.partition(".")
    return (before + found, int(number), part) if found and number.isdigit() else ("", None, name)


def _padded(name: str, part: str, reader: Reader, shape: Shape, source: Path, scaled: bool) -> Entry:
    words, old = part.split("."), reader.shape(name)
    module, kind = words[-2], words[-1]
    heads, kv = (n * shape.head_dim for n in (shape.heads[1], shape.kv_heads[1]))
    hidden, mlp, small = shape.hidden[1], shape.intermediate[1], 1 / math.sqrt(shape.width)
    linear = {
        "q_proj": (heads, hidden),
        "k_proj": (kv, hidden),
        "v_proj": (kv, hidden),
        "o_proj": (hidden, heads),
        "gate_proj": (mlp, hidden),
        "up_proj": (mlp, hidden),
        "down_proj": (hidden, mlp),
        "embed_tokens": (old[0], hidden),
        "lm_head": (old[0], hidden),
    }
    if module in ("input_layernorm", "post_attention_layernorm", "norm", "hidden_norm"):
        return Entry(name, (hidden,), lambda: _grown(reader.read(name) * np.float32(small), (hidden,)))
    if module in ("q_norm", "k_norm"):
        return Entry(name, old, lambda: reader.read(name))
    if module == "fc":
        taps = old[1] // shape.hidden[0]
        new = (hidden, taps * hidden)
        cut, wide = (shape.hidden[0], taps, shape.hidden[0]), (hidden, taps, hidden)
        return Entry(name, new, lambda: _grown(reader.read(name).reshape(cut), wide).reshape(new))
    if module not in linear or kind not in ("weight", "bias"):
        raise ModelError(f"{source}: tensor {name} cannot be padded; allowed: those of a Llama or Qwen3 decoder")
    size = linear[module] if kind == "weight" else linear[module][:1]
    factor = np.float32(small if scaled and module in ("q_proj", "k_proj") else 1)
    return Entry(name, size, lambda: _grown(reader.read(name) * factor, size))


def _zeros(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32)


def _grown(array: Array, shape: tuple[int, ...]) -> Array:
    """`array` in the first corner of zeros."""
    wide = _zeros(shape)
    wide[tuple(slice(n) for n in array.shape)] = array
    return wide
