"""The chaos run of benchmarks/chaos in small."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from chaos import outcome, storm
from small_bench import CELLS, Bench

pytestmark = pytest.mark.slow


def test_a_run_under_fire_ends_as_an_undisturbed_one(bench: Bench, ready: Bench, tmp_path: Path) -> None:
    calm = storm.copy(ready, tmp_path / "calm")
    storm.in_peace(calm)
    with storm.small_disk(bench) as disk:
        survived = storm.survive(bench, random.Random(8), 3, disk)
        outcome.compare(outcome.of(calm), outcome.of(bench))
        assert set(bench.cells()) == CELLS
    assert survived.strikes.total() >= 1
