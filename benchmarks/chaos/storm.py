"""Runs under fire: a plan is started again until it is finished, struck at random points all the while."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import yaml
from chaos import strikes
from chaos.ledger import Ledger
from small_bench import Bench, make, wait_for

TARGET = "results/small/tables"
METHODS: dict[str, dict[str, object]] = {
    "ar": {"method": "autoregressive"},
    "lookup": {"method": "prompt_lookup", "draft_tokens": 4},
    "chain": {"method": "dflash"},
    "tree-b3": {"method": "ddtree", "budget": 3},
    "tree-b7": {"method": "ddtree", "budget": 7},
    "tree-b15": {"method": "ddtree", "budget": 15},
}
PACE = {"DDTREE_TEST_TOKEN_S": "0.01"}  # of the fake engine
DISK_BYTES = 16 << 20
LIMIT_S = 900  # for one run
GAP_S = (0.0, 1.5)  # between two strikes


def plan(servers: int = 6, workloads: int = 5) -> dict[str, object]:
    """`servers` x `workloads` x two concurrencies: 60 cells."""
    load = {"source": "held_out", "max_new_tokens": 8, "prompts": 2}
    return {
        "plan": "small",
        "baseline": "ar",
        "chain": "chain" if servers > 2 else None,
        "models": {"tiny": {"target": {"path": "tiny/target"}, "drafter": {"path": "tiny/drafter"}}},
        "server_defaults": {"model": "tiny", "stop_grace_s": 2, "threads": 1, "context_length": 2048},
        "servers": dict(list(METHODS.items())[:servers]),
        "concurrency": [1, 2],
        "workloads": {f"load-{i}": {**load, "audit": i == 0, "max_new_tokens": 8 + i} for i in range(workloads)},
        "ports": [19500, 19539],
    }


def prepare(folder: Path, engine: str, content: dict[str, object] | None = None) -> Bench:
    """A benchmark folder with model and prompts and no cell."""
    folder.mkdir(parents=True)
    bench = make(folder)
    bench.configure(content or plan())
    if engine == "real":
        (folder / ".envs/embedded/bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    loads = (content or plan())["workloads"]
    assert isinstance(loads, dict)
    status, output = bench.run(*(f"results/small/prompts/tiny/{name}.json" for name in loads))
    assert status == 0, output
    return bench


def copy(bench: Bench, folder: Path) -> Bench:
    return Bench(Path(shutil.copytree(bench.folder, folder)))


def in_peace(bench: Bench) -> None:
    """An undisturbed run; raises AssertionError with its last words if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        status = _start(bench, output).wait(timeout=LIMIT_S)
        output.seek(0)
        assert status == 0, output.read()[-4000:]


@dataclass
class Survived:
    """`runs` counts starts of Snakemake, `strikes` what hit by kind."""

    strikes: Counter[str] = field(default_factory=Counter)
    runs: int = 0


def survive(bench: Bench, rng: random.Random, limit: int, disk: Path | None) -> Survived:
    """Run `bench` to its end through up to `limit` strikes; raises AssertionError where it does not hold."""
    done, ledger = Survived(), Ledger(bench)
    while True:
        with tempfile.TemporaryFile("w+") as output:
            run = _start(bench, output)
            done.runs += 1
            while done.strikes.total() < limit:
                role = strikes.choose(rng, disk is not None)
                if not _appears(bench, run, role) or not _lasts(run, rng.uniform(*GAP_S)):
                    break
                if kind := strikes.strike(bench, run.pid, role, rng, disk):
                    done.strikes[kind] += 1
                ledger.check()
            status = run.wait(timeout=LIMIT_S)
            wait_for(lambda: not bench.processes(), "the end of every process", limit_s=30)
            assert not bench.leases(), bench.leases()
            ledger.check()
            if status == 0:
                break
            if done.strikes.total() >= limit and done.runs > 2 * limit + 10:
                output.seek(0)
                raise AssertionError(f"it does not finish in peace either:\n{output.read()[-4000:]}")
    _ports_are_free(bench)
    leftovers = [str(path) for path in (bench.folder / "results").rglob("*.tmp")]
    assert not leftovers, leftovers
    return done


def _start(bench: Bench, output: TextIO) -> subprocess.Popen[str]:
    return subprocess.Popen(
        bench.command(TARGET),
        cwd=bench.folder,
        env=bench.environment | PACE,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _appears(bench: Bench, run: subprocess.Popen[str], role: str) -> bool:
    """Wait for a process to strike; False if the run ends before there is one."""
    while role not in strikes.roles(bench, run.pid):
        if not _lasts(run, 0.1):
            return False
    return True


def _lasts(run: subprocess.Popen[str], seconds: float) -> bool:
    """Whether it still runs after this time."""
    try:
        run.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def _ports_are_free(bench: Bench) -> None:
    first, last = yaml.safe_load((bench.folder / "config/ddtree.yaml").read_text())["ports"]
    for port in range(first, last + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


@contextmanager
def small_disk(bench: Bench) -> Iterator[Path | None]:
    """The results on a small file system of their own, if this process may mount one; yields its folder."""
    results = bench.folder / "results"
    aside = results.with_name("results-before")
    results.rename(aside)
    results.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(results)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    # copystat of every file: the rules go by their times.
    shutil.copytree(aside, results, dirs_exist_ok=True)
    try:
        yield results if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(results)], check=True)
