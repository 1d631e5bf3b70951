"""The places where SGLang takes every DFlash-family target for a chain, changed through its own hook registry.

Installed only in a process that serves DDTREE, and each falls through to SGLang's answer for any other algorithm.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from ddtree.sglang_plugin import config
from ddtree.sglang_plugin.verify_info import DDTreeVerifyInput

GRAPH_DUMMY = "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.get_spec_info"
WARMUP_DUMMY = "sglang.srt.speculative.spec_info.create_dummy_verify_input"
STATE = "sglang.srt.managers.scheduler.Scheduler.get_internal_state"


def install() -> None:
    """Apply the hooks. Raises RuntimeError when one did not take: SGLang itself would only log that."""
    for target, hook, kind in (
        (GRAPH_DUMMY, graph_dummy, HookType.AROUND),
        (WARMUP_DUMMY, warmup_dummy, HookType.AROUND),
        (STATE, add_state, HookType.AFTER),
    ):
        if target not in HookRegistry._patched:
            HookRegistry.register(target, hook, kind)
    HookRegistry.apply_hooks()
    if missing := {GRAPH_DUMMY, WARMUP_DUMMY, STATE} - HookRegistry._patched:
        raise RuntimeError(f"{config.NAME}: hooks that did not take: {', '.join(sorted(missing))}")


def graph_dummy(original: Callable[..., Any], runner: Any, num_tokens: int) -> Any:
    """The verify input with which the target's CUDA graphs are captured."""
    if not is_ours(runner.model_runner.spec_algorithm):
        return original(runner, num_tokens)
    return DDTreeVerifyInput.dummy(
        runner.captured_req_width, runner.model_runner.server_args.speculative_eagle_topk, runner.buffers.custom_mask
    )


def warmup_dummy(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The verify input of dummy runs outside graphs, such as kernel autotuning."""
    names = ("spec_algorithm", "server_args", "custom_mask", "num_tokens_per_req", "is_draft_worker")
    given = dict(zip(names, args, strict=False)) | kwargs
    if given["is_draft_worker"] or not is_ours(given["spec_algorithm"]):
        return original(*args, **kwargs)
    topk = given["server_args"].speculative_eagle_topk
    return DDTreeVerifyInput.dummy(given["num_tokens_per_req"], topk, given["custom_mask"])


def add_state(result: Any, scheduler: Any, *args: Any) -> Any:
    """`/server_info` shows the configuration in force."""
    if is_ours(scheduler.spec_algorithm):
        args_ = scheduler.server_args
        found = config.read(args_, os.environ, args_.speculative_dflash_block_size)
        result.internal_state["ddtree"] = asdict(found)
    return result


def is_ours(algorithm: Any) -> bool:
    return getattr(algorithm, "name", None) == config.NAME
