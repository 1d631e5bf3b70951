import sys
from dataclasses import replace
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ddtree.sglang_plugin import config, plugin


def arguments(**changes: object) -> SimpleNamespace:
    good = {
        "device": "cuda",
        "speculative_num_draft_tokens": 32,
        "speculative_eagle_topk": 8,
        "speculative_draft_window_size": None,
        "speculative_draft_model_path": "/drafter",
        "pp_size": 1,
        "enable_dp_attention": False,
        "page_size": 1,
    }
    return SimpleNamespace(**good | changes)


def test_sglangs_flags_give_rows_and_candidates() -> None:
    found = config.read(arguments(), {}, 16)
    assert found == config.Config(31, 8, 16, 32, None, False)
    assert found.depth == 15
    assert found.line() == "budget=31, topk=8, block_size=16, rows=32, draft_window=None, shadow=False"


def test_variables_say_what_the_flags_cannot() -> None:
    small = config.read(arguments(speculative_num_draft_tokens=16), {config.BUDGET: "8", config.TOPK: "1"}, 16)
    assert (small.budget, small.topk, small.rows) == (8, 1, 16)
    shadow = config.read(arguments(speculative_num_draft_tokens=16), {config.SHADOW: "1", config.BUDGET: "63"}, 16)
    assert (shadow.budget, shadow.rows, shadow.shadow) == (63, 16, True)
    assert replace(shadow, shadow=False, budget=15) == config.read(arguments(speculative_num_draft_tokens=16), {}, 16)


@pytest.mark.parametrize(
    ("changes", "variables", "said"),
    [
        ({"speculative_num_draft_tokens": None}, {}, "--speculative-num-draft-tokens is missing; give budget + 1"),
        ({"speculative_num_draft_tokens": 8}, {}, "--speculative-num-draft-tokens is 8; allowed: 16"),
        ({"speculative_num_draft_tokens": 257}, {}, "--speculative-num-draft-tokens is 257; allowed: 16"),
        ({"speculative_eagle_topk": 1}, {}, "--speculative-eagle-topk is 1; allowed: 2 to 32"),
        ({"speculative_eagle_topk": None}, {}, "--speculative-eagle-topk is None; allowed: 2 to 32"),
        ({"speculative_draft_window_size": 8}, {}, "--speculative-draft-window-size is 8; allowed: 16"),
        ({}, {config.BUDGET: "32"}, "SGLANG_DDTREE_BUDGET=32; allowed: 1 to 31"),
        ({}, {config.BUDGET: "many"}, "SGLANG_DDTREE_BUDGET=many; allowed: 1 to 31"),
        ({}, {config.TOPK: "0"}, "SGLANG_DDTREE_TOPK=0; allowed: 1 to 32"),
        ({}, {config.SHADOW: "yes"}, "SGLANG_DDTREE_SHADOW=yes; allowed: 0, 1"),
        ({}, {config.SHADOW: "1"}, "SGLANG_DDTREE_SHADOW=1 verifies the chain"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(
    changes: dict[str, object], variables: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=r"^DDTREE: ") as refused:
        config.read(arguments(**changes), variables, 16)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "backends", "said"),
    [
        ({"device": "cpu"}, ("fa3", "fa3"), "--device is cpu; allowed: cuda"),
        ({"speculative_draft_model_path": None}, ("fa3", "fa3"), "--speculative-draft-model-path is missing"),
        ({"pp_size": 2}, ("fa3", "fa3"), "--pp-size is 2; allowed: 1"),
        ({"enable_dp_attention": True}, ("fa3", "fa3"), "--enable-dp-attention is not supported"),
        ({"page_size": 16}, ("fa3", "fa3"), "--page-size is 16; allowed: 1"),
        ({}, ("fa3", "flashinfer"), "--attention-backend is flashinfer; allowed: fa3, triton"),
        ({}, (None, None), "--attention-backend is None; allowed: fa3, triton"),
    ],
)
def test_servers_that_cannot_be_are_refused_in_one_line(
    changes: dict[str, object], backends: tuple[str | None, ...], said: str
) -> None:
    config.check(arguments(), ("fa3", "triton"))
    with pytest.raises(ValueError, match=r"^DDTREE: ") as refused:
        config.check(arguments(**changes), backends)
    assert said in str(refused.value)


def test_a_release_that_is_not_supported_refuses_the_algorithm_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    def register(name: str, **options: Any) -> Any:
        given.update(options, name=name)
        return lambda factory: factory

    module = ModuleType("spec_info")
    module.SpeculativeAlgorithm = SimpleNamespace(register=register)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sglang.srt.speculative.spec_info", module)
    monkeypatch.setattr(metadata, "version", lambda package: "0.5.23")
    plugin.register()
    assert given["name"] == "DDTREE"
    with pytest.raises(ValueError, match=r"^DDTREE: sglang 0\.5\.23 is not supported; allowed: 0\.5\.16$"):
        given["validate_server_args"](arguments())
