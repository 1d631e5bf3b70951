"""The algorithm object that SGLang asks what DDTREE is like: a DFlash drafter whose blocks are verified as trees."""

from __future__ import annotations

import logging
import os
from importlib import import_module, metadata
from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from ddtree.sglang_plugin import config, hooks
from ddtree.sglang_plugin.compat import RELEASES

logger = logging.getLogger(__name__)
MAX_RUNNING_REQUESTS = 48  # as SGLang's own DFLASH


class DDTreeAlgorithm(CustomSpecAlgo):
    """Answers like the built-in DFLASH: target features are captured, the draft's K/V cache is sized with the target's.

    `create_future_map`, `need_topk` and `carries_draft_hidden_states` are called on every algorithm, but released
    versions of the base class lack them.
    """

    def is_dflash(self) -> bool:
        return True

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    def has_draft_kv(self) -> bool:
        """False: only the verified rows need slots, not one chain of pages per top-k branch."""
        return False

    def need_topk(self) -> bool:
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def get_num_tokens_per_req_for_target_verify(self, num_draft_tokens: int, is_draft_worker: bool) -> int:
        # The draft runner itself goes by the name of DFLASH (see compat), its width is set there.
        return num_draft_tokens

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> Any:
        from sglang.srt.managers.overlap_utils import FutureMap

        return FutureMap(device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay)

    def handle_server_args(self, server_args: Any) -> None:
        """Checks and completes the arguments; SGLang's own checks of trees and of DFLASH do not run for a plugin."""
        from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
        from sglang.srt.arg_groups.speculative_hook import _resolve_dflash_draft_attention_backend

        config.check(server_args, attention_backends_of(resolved_view(server_args)))
        block_size = server_args.speculative_dflash_block_size or drafter_block_size(server_args)
        config.read(server_args, os.environ, block_size)
        server_args.speculative_dflash_block_size = block_size
        server_args.speculative_num_steps = 1
        _resolve_dflash_draft_attention_backend(server_args)
        if server_args.max_running_requests is None:
            server_args.max_running_requests = MAX_RUNNING_REQUESTS
        if server_args.enable_mixed_chunk:
            logger.warning("%s: mixed chunked prefill is switched off", config.NAME)
            server_args.enable_mixed_chunk = False


def drafter_block_size(server_args: Any) -> int:
    """The block size in the drafter's config.json. Raises ValueError where there is none."""
    import json

    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
    from sglang.srt.utils.hf_transformers_utils import get_config

    found = get_config(
        server_args.speculative_draft_model_path,
        trust_remote_code=server_args.trust_remote_code,
        revision=server_args.speculative_draft_model_revision,
        model_override_args=json.loads(server_args.json_model_override_args),
    )
    block_size = parse_dflash_draft_config(draft_hf_config=found).resolve_block_size(default=None)
    if block_size is None:
        raise ValueError(
            f"{config.NAME}: {server_args.speculative_draft_model_path}/config.json has no block_size; "
            "give --speculative-dflash-block-size"
        )
    return int(block_size)


def worker_class(server_args: Any) -> type:
    """The factory that the scheduler calls when the target is loaded and no graph captured yet: the time for hooks."""
    hooks.install()
    module = import_module(RELEASES[metadata.version("sglang")])
    worker: type = module.DDTreeWorker
    return worker
