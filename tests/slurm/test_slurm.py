"""The pipeline on a real Slurm: sessions as batch jobs, and every way in which a batch job ends too early."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from slurm_bench import ONE_NODE, SlurmBench, finish, output
from small_bench import CELLS, MANIFESTS, kill, wait_for

from ddtree.cells import read_cell

pytestmark = pytest.mark.slurm


def test_sessions_are_batch_jobs_with_their_gpus_and_the_rest_runs_on_the_submit_host(cluster: SlurmBench) -> None:
    status, said = cluster.run(*MANIFESTS)
    assert status == 0, said
    assert set(cluster.cells()) == CELLS
    assert sorted(job["TresPerJob"] for job in cluster.jobs()) == ["gres:gpu:1", "gres:gpu:4"]
    assert cluster.states() == ["COMPLETED"] * 2
    cells = [read_cell(cluster.folder / f"results/small/cells/{server}/short/c1.json") for server in ("ar", "tree")]
    one, four = (set(str(cell.provenance["server_gpus"]).split(",")) for cell in cells)
    assert (len(one), len(four)) == (1, 4)
    assert not cluster.leases()


def test_a_session_that_runs_out_of_time_goes_on_in_a_second_job(cluster: SlurmBench) -> None:
    cluster = replace(cluster, runtime_min=1)
    with cluster.half_measured(token_s=1) as process:
        wait_for(lambda: "TIMEOUT" in cluster.states(), "the time limit", limit_s=180)
        before = cluster.cells()
        finish(process, limit_s=400)
    cluster.check_resumed(before)


def test_a_cancelled_session_goes_on_in_a_second_job(cluster: SlurmBench) -> None:
    with cluster.half_measured() as process:
        before = cluster.cells()
        cluster.cancel_all()
        finish(process)
    assert cluster.states() == ["CANCELLED", "COMPLETED"]
    cluster.check_resumed(before)


def test_a_session_whose_node_fails_goes_on_when_the_node_is_back(cluster: SlurmBench, node: Path) -> None:
    with cluster.half_measured() as process:
        before = cluster.cells()
        daemon = psutil.Process(int((node / "slurmd.pid").read_text()))
        steps = [each.pid for each in psutil.process_iter(["name"]) if each.info["name"] == "slurmstepd"]
        for pid in (daemon.pid, *steps, *set(cluster.processes()) - {process.pid}):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "down" in output("sinfo", "-h", "-o", "%T"), "the loss of the node", limit_s=90)
        output(ONE_NODE, "start", node)
        finish(process)
    cluster.check_resumed(before)


def test_ctrl_c_cancels_the_jobs_and_the_next_run_measures_what_is_missing(cluster: SlurmBench) -> None:
    with cluster.half_measured() as process:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    wait_for(lambda: cluster.states() == ["CANCELLED"], "the end of the job")
    assert not cluster.processes()
    before = cluster.cells()
    finish(cluster.start(MANIFESTS[1]))
    cluster.check_resumed(before)


def test_a_job_outlives_a_killed_snakemake_and_the_next_run_waits_for_it(cluster: SlurmBench) -> None:
    with cluster.half_measured() as process:
        kill(process)
        before = cluster.cells()
        finish(cluster.start(MANIFESTS[1]))
    assert cluster.states() == ["COMPLETED"] * 2
    cluster.check_resumed(before)
    second = cluster.manifest("tree")
    assert second.starts == []  # it found everything measured


def test_any_batch_system_will_do(cluster: SlurmBench) -> None:
    profile = ["--workflow-profile", "profiles/cluster-generic", "--cluster-generic-cancel-cmd", "scancel"]
    submit = "sbatch --parsable --cpus-per-task={threads} --gpus={resources.gpu} --mem=200 --output=logs/batch-%j.log"
    command = [sys.executable, "-m", "snakemake", *MANIFESTS, *profile, "--cluster-generic-submit-cmd", submit]
    process = cluster._start(command, False, {})
    finish(process)
    assert set(cluster.cells()) == CELLS
    assert len(cluster.jobs()) == 2
