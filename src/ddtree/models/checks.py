"""What a usable checkpoint folder must hold, and what makes a drafter belong to a target."""

from __future__ import annotations

import json
from pathlib import Path

from ddtree.models.errors import ModelError
from ddtree.models.files import read_config


def check_folder(folder: Path, tokenizer: bool) -> None:
    """Raise ModelError unless `folder` holds a configuration, complete weights and, if asked, a tokenizer."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder")
    read_config(folder)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = set(json.loads(index.read_text())["weight_map"].values())
        if missing := sorted(name for name in shards if not (folder / name).is_file()):
            raise ModelError(f"{folder}: {missing[0]} is missing (named by {index.name})")
    elif not any(folder.glob("*.safetensors")):
        raise ModelError(f"{folder}: holds no *.safetensors")
    if tokenizer and not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{folder}: holds no tokenizer.json")


def check_pair(target: Path, drafter: Path) -> None:
    """Raise ModelError unless the drafter is a DFlash drafter made for this target's shape."""
    big, small, path = read_config(target), read_config(drafter), drafter / "config.json"
    big = big.get("text_config", big)  # models that also see keep their decoder's shape there
    dflash = small.get("dflash_config")
    if not isinstance(dflash, dict) or not {"mask_token_id", "target_layer_ids"} <= dflash.keys():
        raise ModelError(
            f"{path}: not a DFlash drafter: dflash_config with mask_token_id and target_layer_ids is missing"
        )
    if not isinstance(small.get("block_size"), int) or small["block_size"] < 2:
        raise ModelError(f"{path}: block_size must be an integer of at least 2")
    for key in ("hidden_size", "vocab_size"):
        if small.get(key) != big.get(key):
            raise ModelError(f"{path}: {key} is {small.get(key)}, but the target {target} has {big.get(key)}")
    layers = big["num_hidden_layers"]
    if small.get("num_target_layers", layers) != layers:
        raise ModelError(f"{path}: num_target_layers is {small['num_target_layers']}, but the target has {layers}")
    if outside := [i for i in dflash["target_layer_ids"] if not 0 <= i < layers]:
        raise ModelError(
            f"{path}: target_layer_ids names layer {outside[0]}, but the target has layers 0 to {layers - 1}"
        )
