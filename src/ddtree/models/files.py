"""Where a model's checkpoints lie, and the hashes that results depend on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ddtree.files import sha256, write_atomically
from ddtree.models.errors import ModelError

# Everything that decides which ids a text becomes, chat template included.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


class ModelFiles(BaseModel):
    """Content of models/<name>/model.json. Folders are absolute paths in Hugging Face layout."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: Path
    drafter: Path | None = None
    target_sha256: str
    drafter_sha256: str | None = None
    tokenizer_sha256: str

    @classmethod
    def of(cls, target: Path, drafter: Path | None) -> ModelFiles:
        """Hash both folders (reads every weight once)."""
        return cls(
            target=target.resolve(),
            drafter=drafter.resolve() if drafter else None,
            target_sha256=checkpoint_sha256(target),
            drafter_sha256=checkpoint_sha256(drafter) if drafter else None,
            tokenizer_sha256=_sha256(target / n for n in TOKENIZER_FILES if (target / n).is_file()),
        )

    @classmethod
    def read(cls, path: Path) -> ModelFiles:
        try:
            return cls.model_validate_json(path.read_text())
        except OSError as e:
            raise ModelError(f"{path}: {e.strerror}") from None
        except ValidationError as e:
            first = e.errors()[0]
            where = ".".join(map(str, first["loc"])) or "file"
            raise ModelError(f"{path}: {where}: {first['msg']}; prepare the model again") from None

    def write(self, path: Path) -> None:
        write_atomically(path, self.model_dump_json(indent=1) + "\n")


def checkpoint_sha256(folder: Path) -> str:
    """Hash of config.json and the weight files, names included."""
    return _sha256([folder / "config.json", *sorted(folder.glob("*.safetensors"))])


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except OSError as e:
        raise ModelError(f"{path}: {e.strerror}") from None
    except ValueError as e:
        raise ModelError(f"{path}: not JSON: {e}") from None
    if not isinstance(config, dict):
        raise ModelError(f"{path}: must hold a JSON object")
    return config


def block_size(drafter: Path) -> int | None:
    """Tokens per block of a DFlash drafter's folder, the known one included; None when it does not tell."""
    try:
        return int(json.loads((drafter / "config.json").read_text())["block_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sha256(paths: Any) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.name} {sha256(path)}\n".encode())
    return total.hexdigest()
