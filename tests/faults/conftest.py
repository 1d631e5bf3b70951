from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_bench import Bench, make


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Model, prompts and specs are there, nothing is measured."""
    bench = make(tmp_path_factory.mktemp("ready"))
    status, output = bench.run("results/small/prompts/tiny/short.json", "results/small/prompts/tiny/other.json")
    assert status == 0, output
    return bench


@pytest.fixture
def bench(ready: Bench, tmp_path: Path) -> Bench:
    """A folder of the test's own."""
    return Bench(Path(shutil.copytree(ready.folder, tmp_path / "bench")))


@pytest.fixture
def reshape(bench: Bench) -> Callable[..., None]:
    """Change the tree session's spec: keys of its workload `other`, which alone is measured then."""

    def change(**keys: object) -> None:
        path = bench.folder / "results/small/spec/sessions/tree.json"
        spec: dict[str, Any] = json.loads(path.read_text())
        spec["workloads"]["other"] |= keys
        spec["cells"] = [["other", 1]]
        path.write_text(json.dumps(spec))

    return change
