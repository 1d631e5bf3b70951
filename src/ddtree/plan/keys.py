"""What a cell depends on, and nothing else: editing another server or a comment must not invalidate it."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass

import ddtree
from ddtree.bench import MEASURING_VERSION
from ddtree.bench.arrivals import offsets
from ddtree.bench.records import SCHEMA
from ddtree.models.files import ModelFiles
from ddtree.plan.schema import Plan, Server, Workload

# How long something may take decides whether there is a result, not what the result is. `model` is a name: hashes of
# the checkpoints stand for it.
SERVER_LIMITS = {"model", "start_timeout_s", "stop_grace_s"}
# The other keys of a workload only shape its prompts, whose content is hashed.
DECODING_KEYS = {"max_new_tokens", "temperature", "top_p", "ignore_eos", "repeats", "role"}
PROMPT_KEYS = {"source", "path", "subset", "prompts", "prompt_tokens", "turns"}


@dataclass(frozen=True)
class CellId:
    server: str
    workload: str
    concurrency: int

    @property
    def name(self) -> str:
        """Its name within the server: '<workload>/c<N>'."""
        return f"{self.workload}/c{self.concurrency}"


def digest(content: object) -> str:
    """16 hex digits of the sha256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def resolved(plan: Plan, workload: str) -> Workload:
    """The workload with the plan's concurrency and repeats filled in."""
    own = plan.workloads[workload]
    return own.model_copy(
        update={"concurrency": own.concurrency or plan.concurrency, "repeats": own.repeats or plan.repeats}
    )


def cells(plan: Plan, server: str) -> list[CellId]:
    """The server's cells in measuring order: shuffled by the plan's seed, alike for all servers; quality ones last.

    Whatever drifts as a session ages then favours no workload and no concurrency, and reaches both sides of a
    comparison at the same age of their sessions.
    """
    found = [CellId(server, name, c) for name in plan.workloads for c in resolved(plan, name).concurrency or ()]
    random.Random(plan.seed).shuffle(found)
    return sorted(found, key=lambda cell: plan.workloads[cell.workload].role == "quality")


def all_cells(plan: Plan) -> list[CellId]:
    return [cell for server in plan.servers for cell in cells(plan, server)]


def depends_on(
    server: Server,
    workload: Workload,
    concurrency: int,
    prompts_sha256: str,
    files: ModelFiles,
    lock_sha256: str,
    audited: bool,
) -> dict[str, object]:
    """What a cell's result depends on. `workload` is resolved; `audited` says that the answers are scored as well.

    A key that is None (the engine's own choice) does not count, so that a new optional key keeps old results valid.
    """
    # The times themselves, so that an edited file counts; a closed loop has none.
    due = {"arrivals": offsets(workload.arrivals, workload.prompts)} if workload.arrivals else {}
    return due | {
        "measuring": MEASURING_VERSION,
        "schema": SCHEMA,
        "server": server.model_dump(mode="json", exclude=SERVER_LIMITS, exclude_none=True),
        "workload": workload.model_dump(mode="json", include=DECODING_KEYS),
        "concurrency": concurrency,
        "prompts": prompts_sha256,
        "target": files.target_sha256,
        "drafter": files.drafter_sha256 if server.needs_drafter else None,
        "tokenizer": files.tokenizer_sha256,
        "lock": lock_sha256,
        "engine": ddtree.__version__ if server.engine == "embedded" else None,  # its lock does not name it
        "audited": audited,
    }
