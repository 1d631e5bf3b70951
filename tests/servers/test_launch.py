import os
from pathlib import Path

import pytest
from fakes import Files

from ddtree.plan.schema import Server
from ddtree.servers import effective, failures, launch

FILES = Files(Path("/models/target"), Path("/models/drafter"))


def argv(**keys: object) -> list[str]:
    server = Server.model_validate({"model": "m", "threads": 2} | keys)
    return launch.command("arm", server, FILES, Path("/env/python"), 18500).argv


def test_the_command_line_carries_every_setting_of_the_method() -> None:
    words = argv(method="ddtree", budget=15, topk=8, draft_window=64, shadow=True)
    assert words[:3] == ["/env/python", "-m", "ddtree.engine"]
    for flag, value in [
        ("--port", "18500"), ("--target", "/models/target"), ("--drafter", "/models/drafter"), ("--method", "ddtree"),
        ("--budget", "15"), ("--topk", "8"), ("--draft-window", "64"), ("--device", "cpu"), ("--dtype", "float32"),
        ("--threads", "2"), ("--max-running-requests", "8"), ("--context-length", "4096"),
        ("--served-model-name", "arm"),
    ]:  # fmt: skip
        assert words[words.index(flag) + 1] == value
    assert "--shadow" in words


def test_settings_that_were_not_given_are_left_to_the_engine() -> None:
    words = argv(method="autoregressive")
    assert not {"--drafter", "--budget", "--topk", "--draft-window", "--shadow", "--draft-tokens"} & set(words)


def test_a_method_with_a_drafter_refuses_a_model_without() -> None:
    server = Server(model="m", method="dflash")
    with pytest.raises(ValueError, match="server arm: method dflash needs a drafter, model m has none"):
        launch.command("arm", server, Files(Path("/t")), Path("python"), 1)


def test_thread_counts_of_a_job_scheduler_do_not_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    environment = launch.environment("abc", ("3", "5"))
    assert "OMP_NUM_THREADS" not in environment
    assert environment["DDTREE_NONCE"] == "abc"
    assert environment["CUDA_VISIBLE_DEVICES"] == "3,5"
    assert environment["PATH"] == os.environ["PATH"]


def test_differences_name_key_and_both_values() -> None:
    asked = {"budget": 7, "shadow": True, "draft_window": None, "topk": 8}
    assert effective.differences(asked, asked | {"version": "1"}) == []
    assert effective.differences(asked, {"budget": 8, "shadow": 1, "draft_window": None}) == [
        "budget: asked for 7, the server runs with 8",
        "shadow: asked for True, the server runs with 1",
        "topk: asked for 8, the server runs with 'nothing'",
    ]


@pytest.mark.parametrize(
    ("text", "category", "decisive"),
    [
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory\n", "out_of_memory", "memory"),
        ("error: argument --target: /m does not exist or is no folder\n", "missing_model", "/m does not"),
        ("engine: error: argument --budget: invalid int value: 'x'\n", "bad_flag", "--budget"),
        ("OSError: [Errno 98] error while attempting to bind: address already in use\n", "port", "bind"),
        ("error: /m/target: no config.json\n", "missing_model", "/m/target"),
        ("Traceback:\n  File x\nValueError: bad shape\nguard: server ended\n", "other", "bad shape"),
        ("\x1b[31mKeyError: 'w'\x1b[0m\r\nbye\n", "other", "KeyError: 'w'"),
        ("just a line\n", "other", "just a line"),
        ("", "other", "exit status 1"),
    ],
)  # fmt: skip
def test_the_log_names_the_reason(text: str, category: str, decisive: str) -> None:
    reason = failures.classify(text, "other", "exit status 1")
    assert reason.category == category
    assert decisive in reason.detail
    assert reason.detail.endswith("exit status 1)") or not text
    assert all(line.isprintable() for line in reason.log_tail)


def test_an_old_warning_does_not_hide_the_error_that_ended_the_server() -> None:
    text = "warning: cache folder does not exist\n" + "step\n" * 300 + "ValueError: bad shape\n"
    assert failures.classify(text, "crash_in_load", "x").detail == "ValueError: bad shape (x)"
