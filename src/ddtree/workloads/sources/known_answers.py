"""Tasks whose answers are largely known beforehand: text to repeat, and JSON to derive from code."""

from __future__ import annotations

from ddtree.workloads.draft import SLOT, Asked, Draft, Drafts, shares, user
from ddtree.workloads.sources.human_eval import ORIGIN, functions, rotated

_JSON = {
    "extract": "Describe the function above as one JSON object with the keys `name`, `arguments` (a list of objects "
    "with `name` and `type`), `returns`, `summary` and `examples` (a list of objects with `call` and `result`, taken "
    "from its docstring). Reply with the JSON alone.",
    "schema": "Write a JSON Schema for the arguments of the function above, with `title`, `type`, `properties` and "
    "`required`. Reply with the JSON alone.",
}


def copy(asked: Asked) -> Drafts:
    """Real code to be repeated to the letter. A model's state that was damaged shows here, where acceptance hides it.

    meta `expected` is the text. With prompt_tokens the code runs on from function to function up to that length.
    """
    text = (
        f"Repeat the following code exactly, character by character, and write nothing else.\n\n```python\n{SLOT}\n```"
    )
    drafts = [
        Draft(f"copy-{i}", "copy", (user(text),), context=context, meta={"expected": SLOT})
        for i, (_, context) in enumerate(rotated(asked) if asked.workload.prompt_tokens else functions(asked))
    ]
    return shares(asked, drafts, ORIGIN)


def json_tasks(asked: Asked) -> Drafts:
    """JSON about a real function: half of it is the format's, half is copied from the prompt."""
    kinds = list(_JSON)
    drafts = [
        Draft(f"json-{name}", (kind := kinds[i % 2]), (user(f"```python\n{SLOT}\n```\n\n{_JSON[kind]}"),), context=code)
        for i, (name, code) in enumerate(functions(asked))
    ]
    return shares(asked, drafts, ORIGIN)
