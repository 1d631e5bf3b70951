"""How a released SGLang is started, and what its /server_info must then say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ddtree.bench.records import Reason
from ddtree.plan.schema import FlagValue, Server
from ddtree.servers import sglang_flags, sglang_trees
from ddtree.servers.command import Command, Files
from ddtree.servers.identity import ServerFailed
from ddtree.sglang_plugin import config

PORTS = 10  # HTTP, NCCL, and torch.distributed's with the seven that SGLang derives from it
ALGORITHMS = {"autoregressive": None, "prompt_lookup": "NGRAM", "dflash": "DFLASH", "ddtree": config.NAME}
# These identify the server or decide what is compared with what: `extra_args` must not bend them.
OURS = frozenset({
    "model-path", "host", "port", "nccl-port", "dist-init-addr", "served-model-name", "random-seed", "device", "dtype",
    "tp-size", "context-length", "max-running-requests", "speculative-algorithm", "speculative-draft-model-path",
    "speculative-num-draft-tokens", "speculative-eagle-topk", "speculative-draft-window-size", "attention-backend",
    "cuda-graph-max-bs-decode", "max-total-tokens", "config",
})  # fmt: skip


def command(name: str, server: Server, files: Files, python: Path, port: int, nonce: str) -> Command:
    """`python -m sglang.launch_server`. `port` is the first of PORTS leased ones, `nonce` the served model's name.

    Raises ServerFailed for flags that the release or the installed SGLang does not know, ValueError for a model without
    the drafter that the method needs.
    """
    settings = _settings(name, server, files)
    trees = sglang_trees.trees(server, settings["speculative_draft_model_path"]) if server.method == "ddtree" else None
    if trees:
        settings |= sglang_trees.flags(trees)
    own = {
        "host": "127.0.0.1",
        "port": port,
        "nccl_port": port + 1,
        "dist_init_addr": f"127.0.0.1:{port + 2}",
        "served_model_name": nonce,
    }
    words = _words(own | {key: value for key, value in settings.items() if value is not None})
    for flag, value in (server.extra_args or {}).items():
        if flag in OURS:
            raise _bad(name, f"extra_args: {flag} is set by a key of the server or by the program itself")
        words += _flag(f"--{flag}", value)
    flags = [word for word in words if word.startswith("--")]
    release = str(server.engine_version)
    if problem := sglang_flags.unknown(flags, release, python, server.environment or {}):
        raise _bad(name, problem)
    also: dict[str, object] = {flag.replace("-", "_"): value for flag, value in (server.extra_args or {}).items()}
    return Command(
        [str(python), "-m", "sglang.launch_server", *words],
        _asked(server, own, settings, trees),
        also,
        sglang_trees.environment(trees) if trees else {},
    )


def _settings(name: str, server: Server, files: Files) -> dict[str, Any]:
    """Values of SGLang's own options, by their names in /server_info; None leaves an option to SGLang."""
    settings: dict[str, Any] = {
        "model_path": str(Path(files.target).resolve()),
        "device": server.device,
        "dtype": server.dtype,
        "tp_size": server.gpus,
        "random_seed": 0,
        "context_length": server.context_length,
        "max_running_requests": server.max_running_requests,
        "max_total_tokens": server.max_total_tokens,
        "attention_backend": server.attention_backend,
        "cuda_graph_max_bs_decode": server.cuda_graph_max_bs,
        "speculative_algorithm": ALGORITHMS[server.method],
        # Both algorithms count the known token in.
        "speculative_num_draft_tokens": server.draft_tokens + 1 if server.draft_tokens else None,
        "speculative_draft_window_size": server.draft_window,
    }
    if server.needs_drafter:
        if files.drafter is None:
            raise ValueError(f"server {name}: method {server.method} needs a drafter, model {server.model} has none")
        settings["speculative_draft_model_path"] = str(Path(files.drafter).resolve())
    return settings


def _asked(
    server: Server, own: dict[str, object], settings: dict[str, object], trees: config.Config | None
) -> dict[str, object]:
    """What `sglang_info.observed` must show. None means that the setting must be off."""
    asked = {key: value for key, value in settings.items() if value is not None}
    asked |= {
        "version": server.engine_version,
        "port": own["port"],
        "served_model_name": own["served_model_name"],
        "speculative_algorithm": settings["speculative_algorithm"],
        "effective_max_running_requests": server.max_running_requests,
    }
    asked.pop("cuda_graph_max_bs_decode", None)
    if server.cuda_graph_max_bs:
        asked["effective_cuda_graph_max_bs"] = server.cuda_graph_max_bs
    if server.max_total_tokens:
        asked["effective_kv_tokens"] = server.max_total_tokens
    if server.needs_drafter:
        # Only the log tells what the draft worker took over (a window has been dropped silently before).
        asked |= {"speculative_draft_window_size": server.draft_window, "effective_draft_window": server.draft_window}
        asked["speculative_num_steps"] = 1
        if trees:
            asked |= {"effective_block_size": trees.block_size, "ddtree": dataclasses.asdict(trees)}
        else:
            asked["speculative_eagle_topk"] = 1
        if server.draft_tokens:
            asked["effective_block_size"] = server.draft_tokens + 1
    return asked


def _words(settings: dict[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--" + key.replace("_", "-"), str(value))]


def _flag(flag: str, value: FlagValue) -> list[str]:
    """true: the flag alone; false: not given; a list: several words."""
    if isinstance(value, bool):
        return [flag] if value else []
    return [flag, *map(str, value)] if isinstance(value, list) else [flag, str(value)]


def _bad(name: str, problem: str) -> ServerFailed:
    return ServerFailed(Reason(category="bad_flag", detail=f"server {name}: {problem}"))
