"""Prompt sets on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from ddtree.bench.records import SCHEMA, Conversation, PromptSet
from ddtree.files import write_atomically
from ddtree.workloads.draft import WorkloadError


def ids_sha256(warmup: Sequence[Conversation], measured: Sequence[Conversation]) -> str:
    ids = [[conversation.turns for conversation in part] for part in (warmup, measured)]
    return hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()


def write(path: Path, prompts: PromptSet) -> None:
    write_atomically(path, prompts.model_dump_json() + "\n")


def read(path: Path) -> PromptSet:
    """Raises WorkloadError, one line, for a file that is missing, of another schema, cut off or edited."""
    try:
        content = json.loads(path.read_text())
        version = content.get("schema_version") if isinstance(content, dict) else None
        if version != SCHEMA:
            raise WorkloadError(f"{path}: schema_version is {version}, this program reads {SCHEMA}; make it again")
        prompts = PromptSet.model_validate(content)
    except OSError as e:
        raise WorkloadError(f"{path}: {e.strerror}") from None
    except ValidationError as e:
        first = e.errors()[0]
        raise WorkloadError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; make it again") from None
    except json.JSONDecodeError as e:
        raise WorkloadError(f"{path}: not JSON ({e}); make it again") from None
    if ids_sha256(prompts.warmup, prompts.conversations) != prompts.sha256:
        raise WorkloadError(f"{path}: the token ids do not match their sha256 (edited?); make it again")
    return prompts
