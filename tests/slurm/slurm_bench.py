"""A benchmark folder whose sessions are Slurm jobs, and looks at those jobs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from small_bench import CELLS, MANIFESTS, Bench, kill, wait_for

ONE_NODE = Path(__file__).with_name("one_node.sh")
TREE_CELLS = {cell for cell in CELLS if cell.startswith("tree/")}
# Jobs that fit the node, a first status check when a short session has just ended, and no accounting to ask.
SMALL = (
    "--slurm-init-seconds-before-status-checks 10 --slurm-status-command squeue --latency-wait 20 "
    "--default-resources nodes=1 mem_mb=200"
)


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@dataclass(frozen=True)
class SlurmBench(Bench):
    node: Path
    runtime_min: int = 10

    def command(self, *arguments: str) -> list[str]:
        profile = ["--workflow-profile", "profiles/slurm", *SMALL.split(), f"runtime={self.runtime_min}"]
        return [sys.executable, "-m", "snakemake", *arguments, *profile]

    def jobs(self) -> list[dict[str, str]]:
        """What Slurm knows of this folder's jobs, the recently ended ones included, oldest first."""
        records = output("scontrol", "show", "job", "--oneliner").splitlines()
        jobs = [dict(re.findall(r"(\w+)=(\S*)", record)) for record in records if f"WorkDir={self.folder}" in record]
        return sorted(jobs, key=lambda job: int(job["JobId"]))

    def states(self) -> list[str]:
        return [job["JobState"] for job in self.jobs()]

    def cancel_all(self) -> None:
        for job in self.jobs():
            if job["JobState"] in ("RUNNING", "PENDING", "CONFIGURING"):
                output("scancel", job["JobId"])

    @contextmanager
    def half_measured(self, token_s: float = 0.5) -> Iterator[subprocess.Popen[str]]:
        """Snakemake, which measures the tree slowly and has its first cell. Killed afterwards if it still runs."""
        process = self.start(MANIFESTS[1], DDTREE_TEST_TOKEN_S=str(token_s), start_new_session=True)
        try:
            wait_for(self.cells, "a cell", limit_s=150)
            yield process
        finally:
            if process.poll() is None:
                kill(process)

    def check_resumed(self, before: dict[str, bytes]) -> None:
        """Every cell of the tree is there, and those that were finished `before` were not measured again."""
        assert before
        assert set(self.cells()) == TREE_CELLS
        assert self.statuses("tree") == {"ok"}
        assert {name: self.cells()[name] for name in before} == before
        assert not self.leases()


def finish(process: subprocess.Popen[str], limit_s: float = 400) -> str:
    """Output of a run that must end well."""
    said, _ = process.communicate(timeout=limit_s)
    assert process.returncode == 0, said
    return said
