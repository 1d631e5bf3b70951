"""Thoughts split off at the model's own marker, whether it shows in the text or only in the token ids."""

import json
from pathlib import Path

import pytest
from test_coding import prompt_set
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from ddtree.bench.records import Request
from ddtree.models import Tokenizer as ModelTokenizer
from ddtree.quality.thinking import CHANNELS, Markers, Thinking, markers

WORDS = ["[UNK]", "hello", "draft", "code", "analysis", "final"]


def tokenizer(folder: Path, added: list[str], special: bool = False, template: str = "") -> ModelTokenizer:
    inner = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = WhitespaceSplit()
    tokens = [AddedToken(token, special=special, normalized=False) for token in added]
    (inner.add_special_tokens if special else inner.add_tokens)(tokens)
    inner.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return ModelTokenizer(folder)


def thinking(using: ModelTokenizer, last: str = "hello") -> Thinking:
    return Thinking.of(using, prompt_set(["t/1"], last_token=using.encode(last)[-1]))


def said(using: ModelTokenizer, words: str, cut: bool = False) -> Request:
    """An answer as a server gives it: its text lacks special tokens, its ids do not."""
    ids = using.encode(words)
    return Request(
        conversation="c", turn=0, input_tokens=1, sent_s=0, chunks=[], done_s=1,
        finish_reason="length" if cut else "stop", output_ids=ids, text=using.decode(ids),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("added", "template", "expected"),
    [
        (["<think>", "</think>"], "", Markers()),
        (["[THINK]", "[/THINK]"], "", Markers("[THINK]", "[/THINK]")),
        (["<seed:think>", "</seed:think>"], "", Markers("<seed:think>", "</seed:think>")),
        (["◁think▷", "◁/think▷"], "", Markers("◁think▷", "◁/think▷")),
        (["<|START_THINKING|>", "<|END_THINKING|>"], "", Markers("<|START_THINKING|>", "<|END_THINKING|>")),
        (["<|channel|>", "<|message|>"], "", CHANNELS),
        ([], "{{ '<reasoning>' }}...{{ '</reasoning>' }}", Markers("<reasoning>", "</reasoning>")),
        ([], "{{ '<|begin_of_thought|>' }}<|end_of_thought|>", Markers("<|begin_of_thought|>", "<|end_of_thought|>")),
        (["</s>", "</tool_call>", "<tool_call>"], "plain", Markers()),
    ],
)
def test_the_markers_are_the_models_own(tmp_path: Path, added: list[str], template: str, expected: Markers):
    assert markers(tokenizer(tmp_path, added, template=template)) == expected


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("pair", [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_only_what_follows_the_thoughts_is_the_answer(tmp_path: Path, pair: tuple[str, str], special: bool):
    using = tokenizer(tmp_path, list(pair), special)
    answer = thinking(using).answer(said(using, f"{pair[0]} draft {pair[1]} code"))
    assert answer is not None
    assert answer.split() == ["code"]


def test_a_final_channel_is_the_answer(tmp_path: Path):
    using = tokenizer(tmp_path, ["<|channel|>", "<|message|>", "<|end|>"], special=True)
    words = "<|channel|> analysis <|message|> draft <|end|> <|channel|> final <|message|> code <|end|>"
    exact = Thinking(using, Markers("<|channel|> analysis <|message|>", "<|channel|> final <|message|>"), opened=False)
    assert (exact.answer(said(using, words)) or "").split() == ["code"]


@pytest.mark.parametrize("special", [False, True])
def test_thoughts_without_an_end_are_no_answer(tmp_path: Path, special: bool):
    using = tokenizer(tmp_path, ["<think>", "</think>"], special)
    assert thinking(using).answer(said(using, "<think> draft", cut=True)) is None
    assert thinking(using).answer(said(using, "<think> draft")) is None
    opened = thinking(using, last="<think>")
    assert opened.opened
    assert opened.answer(said(using, "draft", cut=True)) is None


def test_a_model_that_may_think_but_answers_at_once_is_heard(tmp_path: Path):
    using = tokenizer(tmp_path, ["<think>", "</think>"])
    assert thinking(using, last="<think>").answer(said(using, "code")) == "code"
    assert thinking(using).answer(said(using, "code", cut=True)) == "code"  # it does not think: it meant it
    assert not thinking(using, last="</think>").opened


def test_an_answer_without_ids_is_split_by_its_text(tmp_path: Path):
    request = said(tokenizer(tmp_path, []), "hello").model_copy(update={"text": "x</think>y", "output_ids": []})
    assert thinking(tokenizer(tmp_path, [])).answer(request) == "y"
