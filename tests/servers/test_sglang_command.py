from pathlib import Path

import pytest
from fake_sglang import fake_sglang
from fakes import Files
from pydantic import ValidationError

from ddtree.plan.schema import SGLANG_RELEASES, Server
from ddtree.servers import ServerFailed, launch, sglang_flags, sglang_info
from ddtree.servers.command import Command
from ddtree.servers.effective import comparable

ROOT = Path(__file__).resolve().parents[2]
FILES = Files(Path("/models/target"), Path("/models/drafter"))


def command(folder: Path, **keys: object) -> Command:
    given = {"engine": "sglang", "engine_version": "0.5.16", "model": "m", "method": "autoregressive"}
    server = Server.model_validate(given | keys)
    return launch.command("arm", server, FILES, fake_sglang(folder, "good"), 18500, "0123abcd")


def value(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_identity_ports_and_limits_are_on_the_command_line(tmp_path: Path, lease_dir: Path) -> None:
    argv = command(tmp_path, gpus=4, max_running_requests=64, context_length=8192).argv
    assert argv[1:3] == ["-m", "sglang.launch_server"]
    for flag, expected in [
        ("--model-path", "/models/target"), ("--host", "127.0.0.1"), ("--port", "18500"), ("--nccl-port", "18501"),
        ("--dist-init-addr", "127.0.0.1:18502"), ("--served-model-name", "0123abcd"), ("--tp-size", "4"),
        ("--dtype", "bfloat16"), ("--max-running-requests", "64"), ("--context-length", "8192"),
    ]:  # fmt: skip
        assert value(argv, flag) == expected
    assert not any("speculative" in word for word in argv)


@pytest.mark.parametrize("method", ["autoregressive", "prompt_lookup", "dflash"])
@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_tensor_parallel_is_on_the_command_line_and_must_be_in_force(
    tmp_path: Path, lease_dir: Path, method: str, gpus: int
) -> None:
    made = command(tmp_path, method=method, gpus=gpus)
    assert value(made.argv, "--tp-size") == str(gpus)
    assert made.asked["tp_size"] == gpus


def test_the_chain_counts_the_known_token_in_and_carries_its_window(tmp_path: Path, lease_dir: Path) -> None:
    made = command(tmp_path, method="dflash", draft_tokens=7, draft_window=2048)
    assert value(made.argv, "--speculative-algorithm") == "DFLASH"
    assert value(made.argv, "--speculative-draft-model-path") == "/models/drafter"
    assert value(made.argv, "--speculative-num-draft-tokens") == "8"
    assert value(made.argv, "--speculative-draft-window-size") == "2048"
    assert made.asked["effective_block_size"] == 8


def test_a_chain_without_a_window_must_run_without_one(tmp_path: Path, lease_dir: Path) -> None:
    made = command(tmp_path, method="dflash")
    assert "--speculative-draft-window-size" not in made.argv
    assert made.asked["effective_draft_window"] is None


def test_prompt_lookup_is_ngram(tmp_path: Path, lease_dir: Path) -> None:
    made = command(tmp_path, method="prompt_lookup", extra_args={"speculative-ngram-max-bfs-breadth": 1})
    assert value(made.argv, "--speculative-algorithm") == "NGRAM"
    assert value(made.argv, "--speculative-ngram-max-bfs-breadth") == "1"
    assert made.also == {"speculative_ngram_max_bfs_breadth": 1}


def test_extra_flags_are_switches_values_and_lists(tmp_path: Path, lease_dir: Path) -> None:
    extra = {"disable-prefill-cuda-graph": True, "enable-metrics": False, "cuda-graph-bs-decode": [1, 8]}
    argv = command(tmp_path, extra_args=extra).argv
    assert argv[-4:] == ["--disable-prefill-cuda-graph", "--cuda-graph-bs-decode", "1", "8"]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"speculative-draft-windw-size": 5}, "did you mean --speculative-draft-window-size"),
        ({"speculative-draft-window": 5}, "--speculative-draft-window is no flag of sglang 0.5.16"),
        ({"served-model-name": "x"}, "served-model-name is set by a key of the server"),
    ],
)
def test_a_flag_that_does_not_exist_or_is_not_for_the_plan_is_named(
    tmp_path: Path, lease_dir: Path, extra: dict[str, object], said: str
) -> None:
    with pytest.raises(ServerFailed) as failed:
        command(tmp_path, extra_args=extra)
    assert failed.value.reason.category == "bad_flag"
    assert said in failed.value.reason.detail


@pytest.mark.parametrize("release", SGLANG_RELEASES)
def test_every_release_has_a_lock_and_knows_every_flag_that_is_used(release: str) -> None:
    lock = (ROOT / "envs" / f"sglang-{release}" / "requirements.lock").read_text()
    assert f"\nsglang=={release} " in lock
    used = {
        "--model-path", "--host", "--port", "--nccl-port", "--dist-init-addr", "--served-model-name", "--random-seed",
        "--device", "--dtype", "--tp-size", "--context-length", "--max-running-requests", "--max-total-tokens",
        "--attention-backend", "--cuda-graph-max-bs-decode", "--speculative-algorithm",
        "--speculative-num-draft-tokens", "--speculative-draft-window-size", "--speculative-draft-model-path",
    }  # fmt: skip
    assert used <= sglang_flags.recorded(release)


def test_the_help_of_argparse_is_read() -> None:
    text = "usage: x [-h] [--tp-size TP]\n\n  --tensor-parallel-size TP, --tp-size TP\n  --no-x, --x  well-known --y\n"
    assert sglang_flags.parse_help(text) == {"--tensor-parallel-size", "--tp-size", "--no-x", "--x", "--y"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"method": "ddtree", "budget": 7}, "method ddtree needs engine_version 0.5.16"),
        (
            {"method": "ddtree", "budget": 7, "engine_version": "0.5.16"},
            "method ddtree needs attention_backend fa3 or triton",
        ),
        (
            {"method": "ddtree", "budget": 7, "engine_version": "0.5.16", "attention_backend": "fa3", "topk": 64},
            "topk 64; allowed in engine sglang: 1 to 32",
        ),
        ({"engine_version": "0.4.0"}, "engine_version 0.4.0 is unknown; allowed: 0.5.16, 0.5.23"),
        ({"dtype": "float32"}, "device cuda in dtype bfloat16"),
        ({"threads": 4}, "threads does not belong to engine sglang"),
        ({"engine": "embedded", "engine_version": None, "extra_args": {"a": 1}}, "extra_args does not belong to"),
    ],
)
def test_keys_that_do_not_fit_the_engine_are_refused(keys: dict[str, object], said: str) -> None:
    given = {"engine": "sglang", "model": "m", "method": "autoregressive"}
    with pytest.raises(ValidationError, match=said):
        Server.model_validate(given | keys)


def test_the_release_defaults_to_the_newest_and_names_the_environment() -> None:
    server = Server.model_validate({"engine": "sglang", "model": "m", "method": "autoregressive"})
    assert (server.env, server.gpus, server.dtype) == (f"sglang-{SGLANG_RELEASES[-1]}", 1, "bfloat16")
    assert Server(model="m", method="autoregressive").env == "embedded"


def test_the_schedulers_view_wins_and_the_log_adds_the_drafters() -> None:
    log = (
        "x Initialized DFLASH draft runner. attention_backend=fa3, model=D, block_size=16, draft_window_size=512, "
        "compact_cache=True\n"
    )
    info = {
        "pid": 7, "nonce": "n", "attention_backend": None, "max_total_num_tokens": 100,
        "cuda_graph_config": {"decode": {"max_bs": 32}},
        "internal_states": [{"attention_backend": "fa3", "effective_max_running_requests_per_dp": 48, "api_key": "x"}],
    }  # fmt: skip
    found = sglang_info.observed(info, log)
    assert {key: found[key] for key in found if key.startswith("effective_")} == {
        "effective_max_running_requests_per_dp": 48,
        "effective_max_running_requests": 48,
        "effective_kv_tokens": 100,
        "effective_cuda_graph_max_bs": 32,
        "effective_draft_window": 512,
        "effective_block_size": 16,
        "effective_draft_attention_backend": "fa3",
    }
    assert (found["attention_backend"], found["pid"]) == ("fa3", 7)
    assert not {"api_key", "internal_states"} & set(found)
    assert sglang_info.observed(info, "")["effective_kv_tokens"] == 100


def test_only_what_can_be_compared_is_compared() -> None:
    info = {"a": 1, "b": "bfloat16", "c": {"x": 1}}
    assert comparable({"a": 2, "b": "auto", "c": '{"x": 1}', "d": 5}, info) == {"a": 2}


DRAFTER = Files(Path("/models/target"), ROOT / "assets" / "smollm2-135m-dflash")


def trees(folder: Path, **keys: object) -> Command:
    given = {
        "engine": "sglang",
        "engine_version": "0.5.16",
        "model": "m",
        "method": "ddtree",
        "attention_backend": "fa3",
    }
    server = Server.model_validate(given | keys)
    return launch.command("arm", server, DRAFTER, fake_sglang(folder, "good"), 18500, "0123abcd")


def test_a_tree_is_as_wide_as_its_budget_and_must_say_so(tmp_path: Path, lease_dir: Path) -> None:
    made = trees(tmp_path, budget=31, topk=4, draft_window=2048)
    assert value(made.argv, "--speculative-algorithm") == "DDTREE"
    assert value(made.argv, "--speculative-num-draft-tokens") == "32"
    assert value(made.argv, "--speculative-eagle-topk") == "4"
    assert made.asked["ddtree"] == {
        "budget": 31, "topk": 4, "block_size": 16, "rows": 32, "draft_window": 2048, "shadow": False,
    }  # fmt: skip
    assert made.asked["effective_draft_window"] == 2048


def test_small_trees_and_one_candidate_keep_sglangs_widths(tmp_path: Path, lease_dir: Path) -> None:
    made = trees(tmp_path, budget=8, topk=1)
    assert value(made.argv, "--speculative-num-draft-tokens") == "16"
    assert value(made.argv, "--speculative-eagle-topk") == "2"
    assert made.environment == {
        "SGLANG_DDTREE_BUDGET": "8", "SGLANG_DDTREE_TOPK": "1", "SGLANG_DDTREE_SHADOW": "0",
    }  # fmt: skip


def test_shadow_trees_leave_the_chain_to_be_verified(tmp_path: Path, lease_dir: Path) -> None:
    made = trees(tmp_path, budget=63, shadow=True)
    assert value(made.argv, "--speculative-num-draft-tokens") == "16"
    assert made.environment["SGLANG_DDTREE_BUDGET"] == "63"
    assert made.environment["SGLANG_DDTREE_SHADOW"] == "1"


def test_a_drafter_without_a_block_size_is_named(tmp_path: Path, lease_dir: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    server = Server.model_validate({
        "engine": "sglang", "engine_version": "0.5.16", "model": "m", "method": "ddtree", "attention_backend": "fa3",
        "budget": 15,
    })  # fmt: skip
    with pytest.raises(ValueError, match=r"config.json: tells no block_size"):
        launch.command("arm", server, Files(Path("/t"), tmp_path), fake_sglang(tmp_path, "good"), 18500, "x")
