"""Agents at work: a task, then one tool result per turn; the model's own replies stand between them.

A conversation is a text file in data/<source>/: `category:` in its first line, then the system prompt and the
turns, separated by lines `--- turn ---`.
"""

from __future__ import annotations

from functools import partial

from ddtree.models import Message
from ddtree.workloads.draft import DATA, Asked, Draft, Drafts, shares, user

ORIGINS = {
    "agentic_debug": "written for this project around HumanEval functions (MIT), with real pytest output; Apache-2.0",
    "agentic_data": "written for this project, tool results computed with Python; Apache-2.0",
}
_SEPARATOR = "\n--- turn ---\n"


def _sessions(name: str, asked: Asked) -> Drafts:
    files = sorted((DATA / name).glob("*.txt"))
    drafts = []
    for path in asked.random().sample(files, len(files)):
        head, *turns = path.read_text().split(_SEPARATOR)
        category, system = head.removeprefix("category: ").split("\n", 1)
        first, *later = (turn.strip() for turn in turns)
        instruction: Message = {"role": "system", "content": system.strip()}
        drafts.append(Draft(path.stem, category, (instruction, user(first)), tuple(later)))
    return shares(asked, drafts, ORIGINS[name])


agentic_debug = partial(_sessions, "agentic_debug")
agentic_data = partial(_sessions, "agentic_data")
