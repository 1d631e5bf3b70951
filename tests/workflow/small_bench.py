"""A small benchmark folder of its own: the repository's Snakefile and rules, a tiny model, a fake engine."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml
from tiny import tiny_pair

from ddtree.bench.records import Manifest

ROOT = Path(__file__).parents[2]
PLAN: dict[str, object] = {
    "plan": "small",
    "baseline": "ar",
    "models": {"tiny": {"target": {"path": "tiny/target"}, "drafter": {"path": "tiny/drafter"}}},
    "server_defaults": {"model": "tiny", "stop_grace_s": 2, "start_timeout_s": 30},
    "servers": {"ar": {"method": "autoregressive"}, "tree": {"method": "ddtree", "budget": 7}},
    "concurrency": [1, 2],
    "workloads": {
        "short": {"source": "held_out", "prompts": 2, "max_new_tokens": 8, "audit": True},
        "other": {"source": "held_out", "prompts": 2, "max_new_tokens": 8, "concurrency": [1]},
    },
    "ports": [19400, 19480],
}
MANIFESTS = ("results/small/sessions/ar.json", "results/small/sessions/tree.json")
CELLS = {f"{s}/{c}" for s in ("ar", "tree") for c in ("short/c1", "short/c2", "other/c1")}


@dataclass(frozen=True)
class Bench:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DDTREE_TEST_FAULTS": str(self.folder / "faults"),
            "DDTREE_LEASE_DIR": str(self.folder / "leases"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]

    def start(self, *arguments: str, start_new_session: bool = False, **environment: str) -> subprocess.Popen[str]:
        """Snakemake with these arguments."""
        return self._start(self.command(*arguments), start_new_session, environment)

    def _start(self, command: list[str], start_new_session: bool, environment: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=start_new_session,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Exit status and output."""
        process = self.start(*arguments, **environment)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def configure(self, plan: dict[str, object]) -> None:
        (self.folder / "config" / "ddtree.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))

    def fault(self, name: str, text: str = "") -> None:
        (self.folder / "faults" / name).write_text(text)

    def cells(self) -> dict[str, bytes]:
        """'<server>/<workload>/c<N>' -> content, of every cell file."""
        root = self.folder / "results/small/cells"
        return {str(p.relative_to(root).with_suffix("")): p.read_bytes() for p in root.rglob("*.json")}

    def manifest(self, server: str) -> Manifest:
        return Manifest.model_validate_json((self.folder / f"results/small/sessions/{server}.json").read_bytes())

    def statuses(self, server: str) -> set[str]:
        return {cell.status for cell in self.manifest(server).cells.values()}

    def start_session(self, server: str, owner: int | None = None, **environment: str) -> subprocess.Popen[str]:
        """A session without Snakemake; `prepared` folders have its spec."""
        command = [sys.executable, "scripts/session.py", "--spec", f"results/small/spec/sessions/{server}.json"]
        command += ["--log", f"logs/sessions/small/{server}.log", "--manifest", f"results/small/sessions/{server}.json"]
        return self._start(command + (["--owner", str(owner)] if owner else []), False, environment)

    def run_session(self, server: str) -> Manifest:
        process = self.start_session(server)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        return self.manifest(server)

    def leases(self) -> list[str]:
        """Leases that some process holds."""
        held = []
        for path in (self.folder / "leases").glob("*.lease"):
            with path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(path.stem)
        return held

    def processes(self) -> list[int]:
        """Everything that runs inside this folder, or serves it."""
        mark = f"DDTREE_TEST_FAULTS={self.folder / 'faults'}"
        found = []
        for process in psutil.process_iter():
            try:
                if mark.partition("=")[2] == process.environ().get("DDTREE_TEST_FAULTS"):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found


def wait_for(condition: Callable[[], object], what: str, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {limit_s:g} s"
        time.sleep(0.02)


def make(folder: Path) -> Bench:
    for name in ("Snakefile", "rules", "scripts", "profiles", "envs"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    for name in ("config", "faults", ".envs/embedded/bin"):
        (folder / name).mkdir(parents=True)
    tiny_pair(folder / "tiny")
    python = folder / ".envs/embedded/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("fake_engine.py")}" "$@"\n')
    python.chmod(0o755)
    shutil.copy(folder / "envs/embedded/requirements.lock", folder / ".envs/embedded/requirements.lock")
    bench = Bench(folder)
    bench.configure(PLAN)
    return bench


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
