"""A real Slurm of one node, and small benchmarks that run on it."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_bench
from slurm_bench import ONE_NODE, SlurmBench


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the node's daemons."""
    folder = tmp_path_factory.mktemp("slurm")
    subprocess.run([ONE_NODE, "install"], check=True, timeout=300)
    subprocess.run([ONE_NODE, "start", folder], check=True, timeout=60)
    yield folder
    subprocess.run([ONE_NODE, "stop", folder], check=True, timeout=60)


@pytest.fixture
def cluster(node: Path, tmp_path: Path) -> Iterator[SlurmBench]:
    """One server on one GPU and one on four; nothing is built yet."""
    plan = copy.deepcopy(small_bench.PLAN)
    plan["server_defaults"] = {"model": "tiny", "stop_grace_s": 2, "start_timeout_s": 30, "device": "cuda", "gpus": 1}
    plan["servers"] = {"ar": {"method": "autoregressive"}, "tree": {"method": "ddtree", "budget": 7, "gpus": 4}}
    (tmp_path / "shared folder").mkdir()
    bench = SlurmBench(small_bench.make(tmp_path / "shared folder").folder, node)
    bench.configure(plan)
    yield bench
    bench.cancel_all()
    small_bench.wait_for(lambda: not bench.processes(), "the end of every process", limit_s=30)
