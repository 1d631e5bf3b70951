"""List scheduling of sessions on GPUs: never more GPUs than there are, and close to the best there is."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree.plan import packing
from ddtree.plan.cost import estimate
from ddtree.plan.layout import Layout
from ddtree.plan.load import load
from ddtree.plan.packing import Job

ROOT = Path(__file__).parents[2]
GPUS = 8
some_jobs = st.lists(st.tuples(st.integers(1, GPUS), st.integers(1, 50)), min_size=1, max_size=5).map(
    lambda pairs: [Job(f"s{i}", gpus, float(seconds)) for i, (gpus, seconds) in enumerate(pairs)]
)


@settings(max_examples=40, deadline=None)
@given(some_jobs)
def test_at_no_time_are_more_gpus_used_than_there_are_and_every_job_runs_once(jobs: list[Job]) -> None:
    began = packing.starts(jobs, GPUS)
    for moment in began:
        running = [job for job, start in zip(jobs, began, strict=True) if start <= moment < start + job.seconds]
        assert sum(job.gpus for job in running) <= GPUS


@settings(max_examples=40, deadline=None)
@given(some_jobs)
def test_the_bound_is_the_best_strict_order_for_few_jobs_and_the_order_for_many_never_beats_its_bound(
    jobs: list[Job],
) -> None:
    best = min(packing.makespan(listed, GPUS, backfill=False) for listed in permutations(jobs))
    assert packing.lower_bound(jobs, GPUS) == best
    many = [Job(f"{job.server}-{copy}", job.gpus, job.seconds) for copy in range(3) for job in jobs]
    assert packing.lower_bound(many, GPUS) <= packing.makespan(packing.order(many, GPUS), GPUS) + 1e-9


@settings(max_examples=40, deadline=None)
@given(some_jobs)
def test_the_order_is_no_worse_than_the_plans_own(jobs: list[Job]) -> None:
    ordered = packing.order(jobs, GPUS)
    assert sorted(ordered, key=lambda job: job.server) == sorted(jobs, key=lambda job: job.server)
    whole_first = sorted(jobs, key=lambda job: job.gpus != GPUS)
    assert packing.makespan(ordered, GPUS) <= packing.makespan(whole_first, GPUS)


def test_the_plan_of_eight_gpus_is_packed_within_a_tenth_of_the_lower_bound(tmp_path: Path) -> None:
    plan = load([ROOT / "config/ct200.yaml"], root=ROOT)
    guess = estimate(plan, Layout(plan.plan, tmp_path))
    seconds = {name: guess.starts[name] for name in plan.servers}
    for cell, expected in guess.cells.items():
        seconds[cell.server] += expected
    jobs = packing.jobs(plan, seconds, GPUS)
    assert {job.gpus for job in jobs} == {1, 4, 8}
    ranks = packing.priorities(plan, seconds, GPUS)
    taken = sorted(jobs, key=lambda job: -ranks[job.server])
    assert packing.makespan(taken, GPUS) <= 1.1 * packing.lower_bound(jobs, GPUS)
    assert packing.makespan(taken, GPUS) <= 1.1 * sum(job.gpus * job.seconds for job in jobs) / GPUS


def test_an_exclusive_session_counts_as_one_on_all_gpus(tmp_path: Path) -> None:
    plan = load([ROOT / "config/ct200.yaml"], {"servers": {"ar-tp1": {"exclusive": True}}}, root=ROOT)
    jobs = packing.jobs(plan, dict.fromkeys(plan.servers, 60.0), GPUS)
    assert next(job for job in jobs if job.server == "ar-tp1").gpus == GPUS
