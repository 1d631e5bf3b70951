from __future__ import annotations

from pathlib import Path

import pytest
from tiny import tiny_pair

from ddtree.models import ModelFiles
from ddtree.workloads import fetch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """A byte-level tokenizer: one token per byte, except for the three special ones."""
    target, _ = tiny_pair(tmp_path_factory.mktemp("tiny"))
    return ModelFiles.of(target, None)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own.jsonl"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are fetched into the project's own cache, once."""
    monkeypatch.setattr(fetch, "CACHE", ROOT / ".data")


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(fetch, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"
