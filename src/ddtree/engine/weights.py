"""Reading a Hugging Face checkpoint: safetensors files, checked for missing, misshapen or unused tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from ddtree.engine.config import read_json


class Checkpoint:
    """The tensors of a folder, handed out one by one in the wanted dtype on the wanted device."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device) -> None:
        self.folder, self.dtype, self.device = folder, dtype, device
        index = folder / "model.safetensors.index.json"
        names = set(read_json(index)["weight_map"].values()) if index.exists() else {"model.safetensors"}
        self._files: dict[str, Any] = {}
        for name in sorted(names):
            path = folder / name
            try:
                file = safe_open(path, framework="pt")
            except Exception as error:  # safetensors raises its own bare exception types
                raise ValueError(f"{path}: cannot be read as safetensors ({error})") from None
            self._files |= dict.fromkeys(file.keys(), file)
        self._unused = set(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """Tensor `name`; ValueError when it is missing or has another shape."""
        if name not in self._files:
            raise ValueError(f"{self.folder}: tensor {name} is missing")
        tensor = self._files[name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{self.folder}: tensor {name} has shape {list(tensor.shape)}, expected {list(shape)}")
        self._unused.discard(name)
        return tensor.to(device=self.device, dtype=self.dtype)

    def stack(self, names: list[str], rows: list[int], columns: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Several linear layers over one input as one: weight [sum(rows), columns] and bias, None if none has one."""
        pairs = list(zip(names, rows, strict=True))
        weight = torch.cat([self.take(f"{name}.weight", n, columns) for name, n in pairs])
        if not any(f"{name}.bias" in self for name in names):
            return weight, None
        biases = [self.take(f"{k}.bias", n) if f"{k}.bias" in self else weight.new_zeros(n) for k, n in pairs]
        return weight, torch.cat(biases)

    def expect_all_used(self, *ignored: str) -> None:
        """ValueError when the checkpoint holds tensors that nothing asked for: the model is not what we take it for."""
        left = sorted(n for n in self._unused if n not in ignored and not n.endswith("rotary_emb.inv_freq"))
        if left:
            raise ValueError(f"{self.folder}: {len(left)} tensors have no place in this model, e.g. {left[0]}")
