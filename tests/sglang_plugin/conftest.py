"""Tests against a released SGLang run where DDTREE_SGLANG names the folder that holds its package `sglang`."""

import os
from pathlib import Path

import pytest

collect_ignore_glob = [] if os.environ.get("DDTREE_SGLANG") else ["test_release_*.py"]


@pytest.fixture(scope="session")
def release() -> Path:
    """The folder of the package `sglang`."""
    folder = Path(os.environ["DDTREE_SGLANG"]) / "sglang"
    assert (folder / "srt").is_dir(), f"DDTREE_SGLANG: {folder} holds no SGLang"
    return folder
