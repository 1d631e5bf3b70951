"""When conversations are due that do not wait for each other: a Poisson process, or recorded times."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

from ddtree.plan.schema import Arrivals

ALLOWED = "a JSON list of seconds, or one number a line, none below the one before"


class BadArrivals(ValueError):
    """A file of arrival times that cannot be used, in one line."""


def offsets(arrivals: Arrivals, count: int, root: Path = Path()) -> list[float]:
    """Seconds of the first `count` arrivals, from the start of the run.

    A Poisson process of `rate` per second has independent exponential gaps of mean 1 / rate; the seed fixes them.
    Recorded times are taken relative to their first. `root` is where a relative path starts. Raises BadArrivals.
    """
    if arrivals.rate is not None:
        gaps = random.Random(arrivals.seed)
        return list(itertools.accumulate(gaps.expovariate(arrivals.rate) for _ in range(count)))
    times = _recorded(root / str(arrivals.replay))
    if len(times) < count:
        raise BadArrivals(f"{arrivals.replay} has {len(times)} times for {count} prompts; allowed: {count} or more")
    return [time - times[0] for time in times[:count]]


def _recorded(path: Path) -> list[float]:
    try:
        text = path.read_text()
        found = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.split()]
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise BadArrivals(f"{path}: {why}; allowed: {ALLOWED}") from None
    number = all(isinstance(time, (int, float)) and abs(time) < float("inf") for time in found)
    if not found or not number or any(later < time for time, later in itertools.pairwise(found)):
        raise BadArrivals(f"{path}: not what is allowed; allowed: {ALLOWED}")
    return found
