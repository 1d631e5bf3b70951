from __future__ import annotations

from pathlib import Path

import pytest
from tiny import tiny_pair


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """So few tokens that a random drafter is right now and then, at every depth of its block."""
    return tiny_pair(tmp_path_factory.mktemp("pair"), vocab=8, block=6)
