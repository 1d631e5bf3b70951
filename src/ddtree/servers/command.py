"""What starting a server needs to know about its files, and what comes out: a command line and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """The part of ddtree.models.ModelFiles that a server needs."""

    @property
    def target(self) -> str | Path: ...
    @property
    def drafter(self) -> str | Path | None: ...


@dataclass(frozen=True)
class Command:
    argv: list[str]
    asked: dict[str, object]  # what /server_info must say, by its own keys
    also: dict[str, object] = field(default_factory=dict)  # the same for flags whose report may have another shape
    environment: dict[str, str] = field(default_factory=dict)  # variables that the engine reads as settings
