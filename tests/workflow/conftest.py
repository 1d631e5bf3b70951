from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_bench import MANIFESTS, Bench, make


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Environment, model and prompts are there, nothing is measured."""
    bench = make(tmp_path_factory.mktemp("prepared"))
    prompts = [f"results/small/prompts/tiny/{name}.json" for name in ("short", "other")]
    status, output = bench.run(*prompts)
    assert status == 0, output
    return bench


@pytest.fixture(scope="session")
def measured(prepared: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Every cell is measured."""
    bench = Bench(tmp_path_factory.mktemp("measured") / "bench")
    shutil.copytree(prepared.folder, bench.folder)
    status, output = bench.run(*MANIFESTS)
    assert status == 0, output
    return bench


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Bench], Bench]:
    """A folder of the test's own, file times included."""

    def copy(bench: Bench) -> Bench:
        return Bench(Path(shutil.copytree(bench.folder, tmp_path / "bench")))

    return copy
