"""The user's own prompts: one JSON object per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ddtree.models import Message
from ddtree.workloads.draft import Asked, Draft, Drafts, WorkloadError, shares


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "user", "assistant"]
    content: str


class _Line(BaseModel):
    """`prompt` is short for one user message. User messages that follow each other are turns of their own: the model's
    reply goes between them; an assistant's message is history that stays as it is written."""

    model_config = ConfigDict(extra="forbid")
    id: str | None = None
    category: str = "own"
    prompt: str | None = None
    messages: Annotated[list[_Message], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> _Line:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        if self.messages and self.messages[-1].role != "user":
            raise ValueError("the last message must be the user's")
        return self


def jsonl(asked: Asked) -> Drafts:
    """The file's first lines are measured, the ones after them warm up."""
    path = Path(asked.workload.path or "")
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise WorkloadError(f"path: {path} cannot be read: {e}") from None
    drafts = [_draft(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if len({draft.id for draft in drafts}) < len(drafts):
        raise WorkloadError(f"{path}: id must be unique")
    return shares(asked, drafts, f"{path.name}, the user's own")


def _draft(path: Path, number: int, text: str) -> Draft:
    try:
        line = _Line.model_validate(json.loads(text))
    except ValidationError as e:
        first = e.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise WorkloadError(f"{path}, line {number}: {key + ': ' if key else ''}{first['msg']}") from None
    except ValueError as e:
        raise WorkloadError(f"{path}, line {number}: not JSON: {e}") from None
    messages: list[Message] = [{"role": m.role, "content": m.content} for m in line.messages or []]
    if line.prompt is not None:
        messages = [{"role": "user", "content": line.prompt}]
    end = len(messages)
    while end > 1 and messages[end - 1]["role"] == messages[end - 2]["role"] == "user":
        end -= 1
    return Draft(
        id=line.id or f"line-{number}",
        category=line.category,
        opening=tuple(messages[:end]),
        later=tuple(message["content"] for message in messages[end:]),
    )
