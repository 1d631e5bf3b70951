"""The files that stages hand to each other: prompt sets, cells, session manifests. Raw data only; metrics.py derives.

Times are seconds. Monotonic times (`sent_s`, `chunks`, `done_s`, `start_s`, `end_s`) share one clock per run and start
anywhere; `*_unix` are wall-clock times for people.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Conversation(Record):
    """`turns[0]` is the whole first prompt. A later turn is appended after the model's reply, whose trailing stop
    token, if any, is dropped first (the turn brings its own closing token)."""

    id: str
    category: str
    turns: list[list[int]]
    meta: dict[str, str] = {}  # e.g. the HumanEval task id


class PromptSet(Record):
    schema_version: int = SCHEMA
    workload: str
    model: str
    spec_hash: str  # of the workload's configuration and the tokenizer: says whether this file is current
    source: str  # origin and licence, for the report
    stop_token_ids: list[int]
    warmup: list[Conversation]
    conversations: list[Conversation]
    sha256: str  # of the token ids of warmup and conversations


class Failure(Record):
    type: str  # exception class or reason: Timeout, EmptyStream, Truncated, HTTPStatus, ...
    detail: str = ""


class Speculation(Record):
    """Counters of one request. `histogram[d]` = verify steps that accepted exactly d draft tokens; their bonus token is
    not counted there. Tokens that a stop or the token limit cut off are not counted either."""

    verify_steps: int
    first_tokens: int  # output tokens that no verify step produced (1: the one sampled from the prefill)
    histogram: list[int]
    verified_nodes: int  # rows that verification computed, root included, summed over steps
    shadow_histogram: list[int] | None = None  # what the tree would have accepted (shadow mode)


class Request(Record):
    conversation: str
    turn: int
    input_tokens: int
    sent_s: float
    due_s: float | None = None  # when its arrival was due: first turns of runs whose arrivals are given
    chunks: list[tuple[float, int]]  # (arrival, cumulative output tokens as the server counts them)
    done_s: float
    finish_reason: str | None
    failure: Failure | None = None
    output_ids: list[int] = []
    text: str = ""
    cached_tokens: int | None = None
    speculation: Speculation | None = None


class Audit(Record):
    """Teacher-forced scores of one answer: at output position i the two best tokens and their log-probs."""

    conversation: str
    turn: int
    top: list[tuple[int, float, int, float]]


class ClientHealth(Record):
    loop_lag_max_s: float
    loop_lag_p99_s: float
    distorted: bool  # the client itself may have bent the numbers
    foreign_cores: float | None = None  # mean number of cores that processes of neither client nor server used
    disturbed: bool = False  # too many foreign cores for the times to be the server's own


class Run(Record):
    """One pass over the workload's conversations."""

    repeat: int
    start_s: float
    end_s: float
    flushed: bool
    requests: list[Request]
    client: ClientHealth


class Cell(Record):
    schema_version: int = SCHEMA
    key: str
    depends_on: dict[str, object] = {}  # what the key is the hash of, to tell what changed
    server: str
    workload: str
    concurrency: int
    role: Literal["load", "quality"]
    started_unix: float
    seconds: float
    attempt: int
    effective: dict[str, object]  # /server_info of the very process that was measured
    provenance: dict[str, object]
    runs: list[Run]
    audits: list[Audit] = []
    sha256: str = ""  # of everything else in the cell: tells a file that was edited afterwards


class Reason(Record):
    """Why there is no result. `category` is machine-readable: out_of_memory, bad_flag, missing_model, import_error,
    crash_in_load, start_timeout, port, nccl, gpus (too few), gpu_busy, effective_differs, cell_timeout,
    too_many_failures, server_died, other."""

    category: str
    detail: str
    log_tail: list[str] = []


class CellStatus(Record):
    status: Literal["ok", "failed"]
    key: str
    sha256: str | None = None
    reason: Reason | None = None


class Start(Record):
    ready: bool
    seconds: float
    log: str
    reason: Reason | None = None


class Manifest(Record):
    schema_version: int = SCHEMA
    server: str
    started_unix: float
    finished_unix: float
    starts: list[Start]
    cells: dict[str, CellStatus] = Field(description="'<workload>/c<N>' -> status")
