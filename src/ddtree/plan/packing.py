"""Sessions side by side on the GPUs of one machine: who goes first, and how long the whole then takes.

A session is a rigid job: it holds its GPUs from start to end. Snakemake's greedy scheduler is list scheduling with
backfilling: whenever GPUs come free it goes through the waiting sessions in order of priority and starts each one that
fits. `starts` is that rule, `order` a good order for it, `lower_bound` what no order and no rule can beat.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from ddtree.plan.schema import Plan

EXHAUSTIVE = 6  # jobs whose every order is tried: 720


@dataclass(frozen=True)
class Job:
    server: str
    gpus: int
    seconds: float


def starts(jobs: Sequence[Job], gpus: int, backfill: bool = True) -> list[float]:
    """Start of each job in seconds, when `jobs` are taken in this order; a job may overtake only with `backfill`.

    ValueError for a job that never fits.
    """
    if wide := [job.server for job in jobs if job.gpus > gpus]:
        raise ValueError(f"{wide[0]} needs more than {gpus} GPUs")
    began = [0.0] * len(jobs)
    waiting, running, free, now = list(range(len(jobs))), list[tuple[float, int]](), gpus, 0.0
    while waiting:
        blocked: list[int] = []
        for i in waiting:
            if jobs[i].gpus <= free and (backfill or not blocked):
                free -= jobs[i].gpus
                began[i] = now
                heapq.heappush(running, (now + jobs[i].seconds, jobs[i].gpus))
            else:
                blocked.append(i)
        if waiting := blocked:
            now, released = heapq.heappop(running)
            free += released
    return began


def makespan(jobs: Sequence[Job], gpus: int, backfill: bool = True) -> float:
    """Seconds until the last of `jobs`, taken in this order, has ended."""
    began = starts(jobs, gpus, backfill)
    return max((start + job.seconds for start, job in zip(began, jobs, strict=True)), default=0.0)


def order(jobs: Sequence[Job], gpus: int) -> list[Job]:
    """`jobs` in the order of priority: those that need the whole machine, which nothing runs beside, then whatever of
    every order (of few jobs) or of longest, largest and widest first is over soonest."""
    whole, narrow = _split(jobs, gpus)
    longest = sorted(narrow, key=lambda job: (-job.seconds, -job.gpus))
    largest = sorted(narrow, key=lambda job: -job.gpus * job.seconds)
    widest = sorted(longest, key=lambda job: -job.gpus)
    tried = [longest, largest, widest, *_all_orders(longest)]
    return [*whole, *min(tried, key=lambda listed: makespan(listed, gpus))]


def lower_bound(jobs: Sequence[Job], gpus: int) -> float:
    """Seconds that no schedule can beat, exact for few jobs.

    Starting jobs in the order of an optimal schedule, none before its predecessor, is never later than that schedule;
    so the best such order is the optimum. For many jobs: the longest job, or the GPU time of all, where a job counts
    whole if none of at least `small` GPUs fits beside it and a narrower one than `small` does not count (dual feasible
    functions; Fekete and Schepers, Math. Programming 91, 2001).
    """
    whole, narrow = _split(jobs, gpus)
    alone = sum(job.seconds for job in whole)
    if orders := _all_orders(narrow):
        return alone + min(makespan(listed, gpus, backfill=False) for listed in orders)
    bound = max((job.seconds for job in narrow), default=0.0)
    for small in range(gpus // 2 + 1):
        counted = (job for job in narrow if job.gpus >= small)
        bound = max(bound, sum(job.seconds * (1 if job.gpus > gpus - small else job.gpus / gpus) for job in counted))
    return alone + bound


def jobs(plan: Plan, seconds: Mapping[str, float], gpus: int) -> list[Job]:
    """The plan's sessions that hold GPUs, an exclusive one all of them."""
    servers = ((name, server) for name, server in plan.servers.items() if server.gpus and seconds[name])
    return [Job(name, gpus if server.exclusive else min(server.gpus, gpus), seconds[name]) for name, server in servers]


def priorities(plan: Plan, seconds: Mapping[str, float], gpus: int | None) -> dict[str, int]:
    """Snakemake priority of each server that waits for GPUs; the highest goes first. None: there is no limit."""
    limit = gpus or sum(server.gpus for server in plan.servers.values())
    ordered = order(jobs(plan, seconds, limit), limit)
    return {job.server: len(ordered) - place for place, job in enumerate(ordered)}


def _split(jobs: Sequence[Job], gpus: int) -> tuple[list[Job], list[Job]]:
    return [job for job in jobs if job.gpus == gpus], [job for job in jobs if job.gpus != gpus]


def _all_orders(jobs: Sequence[Job]) -> list[Sequence[Job]]:
    return list(permutations(jobs)) if 0 < len(jobs) <= EXHAUSTIVE else []
