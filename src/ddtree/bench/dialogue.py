"""How a conversation's contexts follow from its turns and the model's replies: the same for loading and for scoring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddtree.bench.records import Conversation, PromptSet, Request, Run


def extend(context: Sequence[int], reply: Sequence[int], turn: Sequence[int], stop_ids: frozenset[int]) -> list[int]:
    """The next turn's input: the reply's trailing stop token is dropped, the turn brings its own closing token."""
    kept = reply[:-1] if reply and reply[-1] in stop_ids else reply
    return [*context, *kept, *turn]


def contexts(prompts: PromptSet, run: Run) -> Iterator[tuple[Request, list[int]]]:
    """Every request of `run` that succeeded, with the input ids that it was sent with."""
    by_turn = {(r.conversation, r.turn): r for r in run.requests if r.failure is None}
    for conversation in prompts.conversations:
        yield from _one(conversation, by_turn, frozenset(prompts.stop_token_ids))


def _one(
    conversation: Conversation, by_turn: dict[tuple[str, int], Request], stop_ids: frozenset[int]
) -> Iterator[tuple[Request, list[int]]]:
    context: list[int] = []
    reply: list[int] = []
    for number, turn in enumerate(conversation.turns):
        context = extend(context, reply, turn, stop_ids)
        request = by_turn.get((conversation.id, number))
        if request is None:
            return
        yield request, context
        reply = request.output_ids
