from __future__ import annotations

from collections import Counter

import pytest

from ddtree.models import ModelFiles, Tokenizer
from ddtree.plan.schema import Workload
from ddtree.workloads import build


@pytest.mark.parametrize("length", [None, 700, 3000])
def test_text_to_copy_is_in_the_prompt_and_expected(length: int | None, tiny: ModelFiles) -> None:
    tokenizer = Tokenizer(tiny.target)
    prompts = build(0, "w", Workload(source="copy", prompts=4, prompt_tokens=length), "m", tiny)
    for conversation in prompts.conversations:
        (ids,) = conversation.turns
        expected = conversation.meta["expected"]
        assert "def " in expected
        assert f"```python\n{expected}\n```" in tokenizer.decode(ids)
        assert length in (None, len(ids))
    assert len({c.meta["expected"] for c in prompts.conversations}) == 4


def test_json_tasks_show_the_whole_function_and_ask_for_json_in_two_ways(tiny: ModelFiles) -> None:
    tokenizer = Tokenizer(tiny.target)
    prompts = build(0, "w", Workload(source="json", prompts=6), "m", tiny)
    assert Counter(c.category for c in prompts.conversations) == {"extract": 3, "schema": 3}
    for conversation in prompts.conversations:
        text = tokenizer.decode(conversation.turns[0])
        assert f"def {conversation.id.removeprefix('json-')}(" in text
        assert text.count("JSON") >= 2
