"""Starts and stops of an SGLang: real processes that log and answer as release 0.5.16 does, and its faults."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fake_sglang import fake_sglang
from fakes import PORTS, Files, leased, with_nonce

from ddtree.plan.schema import Server
from ddtree.servers import RunningServer, ServerFailed, start

pytestmark = pytest.mark.slow
Launch = Callable[..., RunningServer]


@pytest.fixture
def launch(tmp_path: Path, lease_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")

    def begin(mode: str, **keys: object) -> RunningServer:
        given = {"engine": "sglang", "engine_version": "0.5.16", "model": "tiny", "method": "autoregressive"}
        server = Server.model_validate(given | {"stop_grace_s": 0.3, "start_timeout_s": 60} | keys)
        files = Files(tmp_path / "target", tmp_path / "drafter")
        return start("arm", server, files, fake_sglang(tmp_path, mode), tmp_path / "server.log", PORTS, "test")

    return begin


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.02)


def test_a_chain_with_a_window_runs_as_asked_and_leaves_nothing_behind(launch: Launch, lease_dir: Path) -> None:
    keys: dict[str, object] = {"draft_window": 2048, "attention_backend": "fa3", "cuda_graph_max_bs": 32}
    with launch("good", method="dflash", max_total_tokens=131072, environment={"A_SWITCH": "1"}, **keys) as server:
        assert server.alive()
        assert server.info["effective_draft_window"] == 2048
        assert server.info["effective_kv_tokens"] == 131072
        assert server.info["served_model_name"] == server.nonce
        assert b"A_SWITCH=1" in Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        assert len([name for name in leased(lease_dir) if name.startswith("port-")]) == 10
        scheduler = next(p for p in psutil.Process(server.pid).children() if "scheduler" in p.cmdline())
    assert not psutil.pid_exists(scheduler.pid)  # it ignores SIGTERM and has a session of its own
    assert with_nonce(server.nonce) == []
    assert leased(lease_dir) == []


@pytest.mark.parametrize("gpus", [2, 4])
def test_every_rank_sees_the_leased_gpus_and_no_other(launch: Launch, lease_dir: Path, gpus: int) -> None:
    with launch("good", gpus=gpus) as server:
        assert server.info["tp_size"] == gpus
        assert len(server.gpus) == gpus
        for process in (psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)):
            assert process.environ()["CUDA_VISIBLE_DEVICES"] == ",".join(server.gpus)
            assert process.environ()["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert [name for name in leased(lease_dir) if name.startswith("gpu-")] != []
    assert leased(lease_dir) == []


@pytest.mark.parametrize(
    ("mode", "keys", "said"),
    [
        ("drops_window", {"method": "dflash", "draft_window": 512}, ("effective_draft_window", "512", "None")),
        ("smaller_world", {"gpus": 4}, ("tp_size", "4", "1")),
        ("other_release", {}, ("version", "'0.5.16'", "'0.5.15'")),
        ("other_backend", {"attention_backend": "fa3"}, ("attention_backend", "'fa3'", "'triton'")),
        ("small_cache", {"max_total_tokens": 65536}, ("effective_kv_tokens", "65536", "4096")),
    ],
)
def test_a_silent_change_names_both_values(
    launch: Launch, mode: str, keys: dict[str, object], said: tuple[str, str, str]
) -> None:
    with pytest.raises(ServerFailed) as failed:
        launch(mode, **keys)
    assert failed.value.reason.category == "effective_differs"
    assert failed.value.reason.detail == "{}: asked for {}, the server runs with {}".format(*said)


@pytest.mark.parametrize(
    ("mode", "category", "said"),
    [
        ("oom", "out_of_memory", "CUDA out of memory"),
        ("no_room", "out_of_memory", "--mem-fraction-static"),
        ("nccl", "nccl", "unhandled cuda error"),
        ("few_gpus", "gpus", "invalid device ordinal"),
        ("lost_rank", "nccl", "3/4 clients joined"),
        ("no_weights", "missing_model", "/models/target/config.json"),
        ("no_package", "import_error", "No module named 'sgl_kernel'"),
        ("bad_value", "bad_flag", "--speculative-draft-window-size must be"),
    ],
)
def test_a_dead_scheduler_ends_the_start_with_its_reason(
    launch: Launch, lease_dir: Path, mode: str, category: str, said: str
) -> None:
    with pytest.raises(ServerFailed) as failed:
        launch(mode, start_timeout_s=600)
    assert failed.value.reason.category == category
    assert said in failed.value.reason.detail
    assert leased(lease_dir) == []


@pytest.mark.parametrize(
    ("mode", "said"), [("stale", "another process"), ("no_tokens", "asked for 8 tokens, it generated 0")]
)
def test_a_server_that_is_not_ours_or_does_not_generate_is_not_ready(launch: Launch, mode: str, said: str) -> None:
    with pytest.raises(ServerFailed) as failed:
        launch(mode, start_timeout_s=2)
    assert failed.value.reason.category == "start_timeout"
    assert said in failed.value.reason.detail


def test_a_flag_that_the_installed_release_lacks_is_named_before_the_start(launch: Launch, lease_dir: Path) -> None:
    with pytest.raises(ServerFailed) as failed:
        launch("older_flags")
    assert failed.value.reason.category == "bad_flag"
    assert "--random-seed is no flag of the SGLang of" in failed.value.reason.detail
    assert leased(lease_dir) == []


def test_the_lease_is_kept_until_the_memory_is_seen_free(
    launch: Launch, lease_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = tmp_path / "used"
    used.write_text("10")
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\ncase "$*" in *memory.used*) echo "GPU-0000, $(cat {used})";; esac\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    server = launch("good")
    used.write_text("9000")
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    wait_until(lambda: not psutil.pid_exists(server.pid), "the server ends")
    assert "gpu-0" in leased(lease_dir)
    used.write_text("12")
    stopping.join()
    assert leased(lease_dir) == []
