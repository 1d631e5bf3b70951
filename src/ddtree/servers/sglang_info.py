"""What a running SGLang says about itself: who it is, that it generates, and which configuration is in force.

SGLang reports no nonce and no pid. Its served model's name is ours to choose and carries the nonce; the pid is that of
the process which listens on the port, and it must lie below our guard like any other server's.
"""

from __future__ import annotations

import json
import re
import urllib.error
from collections.abc import Mapping
from urllib.parse import urlsplit

import psutil

from ddtree.servers.identity import ANSWER_S, Dialect, NotReady, get, post

PROBE_TOKENS = 8
# Not for a result file, which is published; the scheduler's states are merged into the rest.
LEFT_OUT = frozenset({"internal_states", "env_vars", "api_key", "admin_api_key", "ssl_keyfile_password"})
_DRAFT_RUNNER = re.compile(r"Initialized DFLASH draft runner\. (?P<settings>.*)")
_SETTING = re.compile(r"(\w+)=([^,\s]+)")


def who(url: str, guard_pid: int, timeout_s: float = ANSWER_S) -> dict[str, object]:
    """Nonce and pid. Unlike /server_info the list of models is answered without the scheduler, which may be busy."""
    models = json.loads(get(url + "/v1/models", timeout_s))
    try:
        return {"nonce": models["data"][0]["id"], "pid": listener(urlsplit(url).port, guard_pid)}
    except (LookupError, TypeError):
        raise NotReady("/v1/models names no model") from None


def info(url: str, guard_pid: int, timeout_s: float = ANSWER_S) -> dict[str, object]:
    """/server_info (/get_server_info before it had that name), with `nonce` and `pid` added."""
    try:
        body = get(url + "/server_info", timeout_s)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        body = get(url + "/get_server_info", timeout_s)
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("/server_info is no JSON object")
    return found | {"nonce": found.get("served_model_name"), "pid": listener(urlsplit(url).port, guard_pid)}


def listener(port: int | None, guard_pid: int) -> int | None:
    """Pid of the process below the guard that listens on `port`, else of whichever does, if this user may know."""
    pids = [
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid
    ]
    try:
        below = {child.pid for child in psutil.Process(guard_pid).children(recursive=True)}
    except psutil.Error:
        below = set()
    return next((pid for pid in pids if pid in below), pids[0] if pids else None)


def generates(url: str, timeout_s: float) -> None:
    """One real completion, after SGLang's own warm-up. Raises NotReady when the answer is not a whole one."""
    get(url + "/health_generate", timeout_s)
    sampling = {"max_new_tokens": PROBE_TOKENS, "temperature": 0.0, "ignore_eos": True}
    meta = json.loads(post(url + "/generate", {"input_ids": [1, 2, 3, 4], "sampling_params": sampling}, timeout_s))
    made = meta["meta_info"]["completion_tokens"]
    if made != PROBE_TOKENS:
        raise NotReady(f"asked for {PROBE_TOKENS} tokens, it generated {made}")


def observed(found: Mapping[str, object], log: str) -> dict[str, object]:
    """The configuration in force, flat: what the scheduler says wins over what the HTTP process was started with.

    Added: `effective_kv_tokens`, `effective_max_running_requests`, `effective_cuda_graph_max_bs` and, from the log,
    `effective_draft_window`, `effective_block_size` and `effective_draft_attention_backend` of a DFLASH drafter.
    """
    states = found.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    flat = {key: value for key, value in (dict(found) | state).items() if key not in LEFT_OUT}
    flat |= {key: found[key] for key in ("nonce", "pid") if key in found}
    memory = flat.get("memory_usage")
    capacity = memory.get("token_capacity") if isinstance(memory, dict) else None
    flat["effective_kv_tokens"] = capacity or flat.get("max_total_num_tokens")
    # The limit holds for the whole server; the scheduler may have cut it to what its memory allows.
    flat["effective_max_running_requests"] = flat.get(
        "effective_max_running_requests_per_dp", flat.get("max_running_requests")
    )
    graphs = flat.get("cuda_graph_config")
    decode = graphs.get("decode") if isinstance(graphs, dict) else None
    flat["effective_cuda_graph_max_bs"] = decode.get("max_bs") if isinstance(decode, dict) else None
    return flat | draft_runner(log)


def draft_runner(log: str) -> dict[str, object]:
    """Settings that the DFLASH draft worker logs when it starts; empty for a server without one."""
    lines = _DRAFT_RUNNER.findall(log)
    if not lines:
        return {}
    said = dict(_SETTING.findall(lines[-1]))
    return {
        "effective_draft_window": _number(said.get("draft_window_size")),
        "effective_block_size": _number(said.get("block_size")),
        "effective_draft_attention_backend": said.get("attention_backend"),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


DIALECT = Dialect(who, info, generates, observed)
