"""A workload's text becomes token ids: chat template, exact lengths, and the hash that says what they depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from ddtree.bench.records import Conversation, PromptSet
from ddtree.models import Message, ModelError, ModelFiles, Tokenizer
from ddtree.plan.keys import PROMPT_KEYS
from ddtree.plan.schema import Workload
from ddtree.workloads.draft import DATA, SLOT, Asked, Draft, WorkloadError, user
from ddtree.workloads.fetch import PACKAGES
from ddtree.workloads.files import ids_sha256
from ddtree.workloads.registry import source

VERSION = 1  # of the code in this package: a prompt set made by another one is made again
_REPLY = "\ue000reply\ue000"  # private-use characters: no real prompt holds them


def build(plan_seed: int, name: str, workload: Workload, model_name: str, files: ModelFiles) -> PromptSet:
    """The prompts of workload `name` under the target's tokenizer: equal arguments give equal prompts.

    Raises WorkloadError, one line, when the source is unknown or has too little text for what is asked.
    """
    try:
        tokenizer = Tokenizer(files.target)
        asked = Asked(workload, max(1, min(2, workload.prompts // 2)), f"{plan_seed}/{name}")
        drafts = source(workload)(asked)
        measured = [_conversation(draft, workload, tokenizer) for draft in drafts.measured]
        warmup = [_conversation(draft, workload, tokenizer) for draft in drafts.warmup]
    except (WorkloadError, ModelError) as e:
        raise WorkloadError(f"workload {name}: {e}") from None
    return PromptSet(
        workload=name,
        model=model_name,
        spec_hash=spec_hash(plan_seed, name, workload, model_name, files),
        source=drafts.origin,
        stop_token_ids=tokenizer.stop_token_ids,
        warmup=warmup,
        conversations=measured,
        sha256=ids_sha256(warmup, measured),
    )


def spec_hash(plan_seed: int, name: str, workload: Workload, model_name: str, files: ModelFiles) -> str:
    """Hash of all that `build` reads: its arguments as far as they shape prompts, the tokenizer, the data files."""
    data = sorted(path for folder in (DATA, PACKAGES) for path in folder.rglob("*") if path.is_file())
    if workload.path and Path(workload.path).is_file():
        data.append(Path(workload.path))
    spec = {
        "version": VERSION,
        "seed": plan_seed,
        "workload": name,
        "model": model_name,
        "shape": workload.model_dump(include=PROMPT_KEYS),
        "tokenizer": files.tokenizer_sha256,
        "data": [hashlib.sha256(path.read_bytes()).hexdigest() for path in data],
    }
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def _conversation(draft: Draft, workload: Workload, tokenizer: Tokenizer) -> Conversation:
    if workload.turns > 1 + len(draft.later):
        raise WorkloadError(
            f"turns: {workload.turns} is more than {draft.id} has; allowed: 1 to {1 + len(draft.later)}"
        )

    def opening(context: str) -> list[int]:
        return tokenizer.encode(tokenizer.chat(_filled(draft.opening, context)))

    length = workload.prompt_tokens
    context = draft.context if length is None else _cut(draft, length, tokenizer, opening)
    later = [_later(draft, text, tokenizer) for text in draft.later[: workload.turns - 1]]
    meta = {key: value.replace(SLOT, context) for key, value in draft.meta.items()}
    return Conversation(id=draft.id, category=draft.category, turns=[opening(context), *later], meta=meta)


def _filled(messages: tuple[Message, ...], context: str) -> list[Message]:
    return [{"role": m["role"], "content": m["content"].replace(SLOT, context)} for m in messages]


def _cut(draft: Draft, length: int, tokenizer: Tokenizer, opening: Callable[[str], list[int]]) -> str:
    """The beginning of the draft's context with which the prompt has exactly `length` tokens."""
    least, context = len(opening("")), draft.context[: 32 * length]  # tokens of real text are far shorter than that
    if length == least and not context:
        return ""
    ends = tokenizer.ends(context)
    if not least < length < least + len(ends):
        allowed = f"{least + 1} to {least + len(tokenizer.ends(draft.context)) - 1}" if context else f"{least}"
        raise WorkloadError(f"prompt_tokens: {length} cannot be reached by {draft.id}; allowed: {allowed}")
    middle = context.rfind("\n", 0, ends[length - least - 1] // 2)
    for _ in range(8):
        # Tokens may merge with what surrounds the context, so the guess can be off by a few: try the cuts next to it.
        guess = tokenizer.ends(context)[length - least - 1]
        for cut in sorted(range(max(0, guess - 40), min(len(context), guess + 40)), key=lambda c: abs(c - guess)):
            if len(opening(context[:cut])) == length:
                return context[:cut]
        # One more character can add two tokens and jump over the length: leave out a line in the middle, try again.
        context = context[: max(0, middle)] + context[context.find("\n", middle + 1) :]
    raise WorkloadError(f"prompt_tokens: no cut of {draft.id} has exactly {length} tokens; try one more or less")


def _later(draft: Draft, text: str, tokenizer: Tokenizer) -> list[int]:
    """Ids of what stands between a reply of the model and its next one: the end of the turn, then the user's words."""
    reply: Message = {"role": "assistant", "content": _REPLY}
    _, found, after = tokenizer.chat([*_filled(draft.opening, ""), reply, user(text)]).rpartition(_REPLY)
    if not found:
        raise WorkloadError(f"turns: the chat template of {tokenizer.folder} does not show the assistant's replies")
    return tokenizer.encode(after)
