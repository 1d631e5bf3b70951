"""The worker for SGLang 0.5.16: its DFLASH worker, with a step of its own for decoding.

Construction, prefill, the draft's K/V cache and the compact draft window are the built-in worker's.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.kernels.ops.speculative.dflash import _prepare_dflash_draft_block_unchecked
from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_utils import apply_dflash_verify_logits_adjustments
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_utils import commit_mamba_states_after_verify, prepare_mamba_track_for_verify

from ddtree.sglang_plugin import config
from ddtree.sglang_plugin.sampler import TreeSampler, target_head
from ddtree.sglang_plugin.tree import Trees
from ddtree.sglang_plugin.verify_info import DDTreeVerifyInput
from ddtree.sglang_plugin.worker_base import Commit, Sampling, TreeSteps

logger = logging.getLogger(__name__)


class DDTreeWorker(DFlashWorkerV2):
    """Draft a block, build the trees in the draft's graph, verify them in one pass, keep the accepted path."""

    def __init__(self, server_args: Any, gpu_id: int, ps: Any, nccl_port: int, target_worker: Any) -> None:
        self.ddtree = config.read(server_args, os.environ, server_args.speculative_dflash_block_size)
        if target_worker.model_runner.sliding_window_size is not None:
            raise ValueError(f"{config.NAME}: targets with sliding-window attention are not supported")
        super().__init__(draft_args(server_args, self.ddtree), gpu_id, ps, nccl_port, target_worker)
        self.server_args = server_args
        self._steps: TreeSteps | None = None
        if ps.tp_rank == 0:
            logger.info("%s ready: %s, attention=%s", config.NAME, self.ddtree.line(), server_args.attention_backend)

    def init_attention_backends(self) -> None:
        super().init_attention_backends()
        backend = self.model_runner.attn_backend
        topk = getattr(getattr(backend, "full_attn_backend", backend), "topk", None)
        if not topk or topk < 2:
            raise ValueError(f"{config.NAME}: the attention back-end verifies chains (its topk is {topk})")

    def _maybe_build_draft_sampler(self) -> TreeSampler:
        return self.steps.sampler

    @property
    def steps(self) -> TreeSteps:
        """Made when graphs are captured, or at the first step where they are off."""
        if self._steps is None:
            runner = self.model_runner
            capacity = max(runner.req_to_token_pool.size, *(self.server_args.cuda_graph_config.decode.bs or ()))
            slots = len(runner.req_to_token_pool.req_to_token)
            head = target_head(runner.model, get_tp_group())
            self._steps = TreeSteps(head, self.ddtree, capacity, slots, self.server_args.random_seed)
        return self._steps

    def forward_batch_generation(
        self, batch: Any, on_publish: Callable[[torch.Tensor], None] | None = None
    ) -> GenerationBatchResult:
        extends = batch.forward_mode.is_extend() or batch.is_extend_in_batch
        if extends and not batch.forward_mode.is_idle():
            self.steps.begin(batch.req_pool_indices)
        if extends or batch.forward_mode.is_idle():
            return super().forward_batch_generation(batch, on_publish)
        # It may come from the scheduler's stream.
        batch.seq_lens.record_stream(torch.get_device_module(self.device).current_stream())
        draft_input = batch.spec_info
        prefix_lens = batch.seq_lens
        trees, positions, slots = self._draft(batch, draft_input)
        target_out = self._verify(batch, draft_input, trees, slots)
        output = target_out.logits_output
        sampling = batch.sampling_info
        if sampling is not None:
            apply_dflash_verify_logits_adjustments(
                next_token_logits=output.next_token_logits, sampling_info=sampling, draft_token_num=trees.nodes
            )
        info = Sampling(sampling, draft_input.max_top_k, draft_input.uniform_top_k_value)
        commit = self.steps.accept(trees, output.next_token_logits, prefix_lens, batch.req_pool_indices, info)
        lengths = commit.walks.lengths
        # By node, not by depth: a hybrid's state after the accepted path is that of its last node.
        commit_mamba_states_after_verify(self.target_worker, batch, lengths, commit.rows, trees.nodes)
        if on_publish is not None:
            on_publish(commit.seq_lens)
        self.steps.compact(self.model_runner.token_to_kv_pool, slots, commit.walks)
        self._write_draft_cache(output.hidden_states, commit, positions, slots)
        output.hidden_states = None  # large, and the scheduler would copy it to the host
        return GenerationBatchResult(
            logits_output=output,
            next_token_ids=commit.walks.tokens.reshape(-1),
            accept_lens=lengths,
            cap_lens=commit.shadow,
            can_run_cuda_graph=target_out.can_run_cuda_graph,
            next_draft_input=self._make_next_draft_input_decode(
                bonus_tokens=commit.walks.bonus, new_seq_lens=commit.seq_lens
            ),
            speculative_num_draft_tokens=self.block_size,
            new_seq_lens=commit.seq_lens,
        )

    def _draft(self, batch: Any, draft_input: Any) -> tuple[Trees, torch.Tensor, torch.Tensor]:
        """Trees [R, N], positions [R, block] of the block and slots [R, N] of the rows to verify."""
        requests, rows = len(batch.seq_lens), self.ddtree.rows
        self._ensure_draft_block_buffers(requests)
        block_ids, positions = self._draft_block_ids_buf[:requests], self._draft_block_positions_buf[:requests]
        block_slots = self._draft_verify_out_cache_loc_buf[:requests]
        table = self.model_runner.req_to_token_pool.req_to_token
        _prepare_dflash_draft_block_unchecked(
            bonus_tokens=draft_input.bonus_tokens.view(-1),
            prefix_lens=batch.seq_lens.view(-1),
            req_pool_indices=batch.req_pool_indices.view(-1),
            req_to_token=table,
            block_ids_out=block_ids,
            positions_out=positions,
            cache_loc_out=block_slots,
            mask_token_id=self._mask_token_id,
        )
        slots = block_slots
        if rows != self.block_size:
            slots = assign_extend_cache_locs_func(
                req_pool_indices=batch.req_pool_indices,
                req_to_token=table,
                start_offset=batch.seq_lens,
                end_offset=batch.seq_lens + rows,
                batch_size=requests,
                draft_token_num=rows,
                device=self.device,
            ).view(requests, rows)
        seq_lens, seq_lens_cpu, total = self._draft_lengths(batch, draft_input, block_slots)
        embeds = self.model_runner.model.get_input_embeddings()(block_ids)
        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=requests,
            input_ids=block_ids.flatten(),
            req_pool_indices=batch.req_pool_indices,
            seq_lens=seq_lens,
            out_cache_loc=block_slots.reshape(-1),
            seq_lens_sum=total,
            seq_lens_cpu=seq_lens_cpu,
            positions=positions.reshape(-1),
            input_embeds=embeds.view(-1, embeds.shape[-1]),
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=self._draft_block_spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        with torch.inference_mode():
            out = self.draft_model_runner.forward(forward_batch)
            if not out.can_run_graph:
                self.steps.sampler(out.logits_output.hidden_states, forward_batch.input_ids)
        return self.steps.sampler.trees[:requests], positions, slots

    def _draft_lengths(
        self, batch: Any, draft_input: Any, block_slots: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Context lengths that the drafter sees, upper bounds of them on the host, and the sum of these bounds."""
        requests = len(batch.seq_lens)
        bound = self._draft_seq_lens_cpu_buf[:requests]
        if self.use_compact_draft_cache:
            seen = self._compute_compact_draft_seq_lens(batch.seq_lens)
            self._fill_compact_seq_lens_cpu_bound(
                batch_seq_lens_cpu=batch.seq_lens_cpu,
                reserved_seq_lens_cpu=draft_input.reserved_seq_lens_cpu,
                draft_prefix_lens=seen,
                out=bound,
            )
            self._rebuild_compact_draft_cache(
                req_pool_indices=batch.req_pool_indices,
                prefix_lens=batch.seq_lens,
                draft_prefix_lens=seen,
                verify_out_cache_loc_2d=block_slots,
                bs=requests,
                block_size=self.block_size,
            )
            return seen, bound, int(bound.sum())
        if batch.seq_lens_cpu is not None:
            bound.copy_(batch.seq_lens_cpu)
            bound.add_(self.block_size)
        else:
            bound.copy_(draft_input.reserved_seq_lens_cpu)
        return batch.seq_lens, bound, int(bound.sum())

    def _verify(self, batch: Any, draft_input: Any, trees: Trees, slots: torch.Tensor) -> Any:
        """The target's pass over all rows."""
        prepare_mamba_track_for_verify(batch)
        most = int(draft_input.reserved_seq_lens_sum)  # at least what is committed on the device
        positions, mask = self.steps.layout(trees, batch.seq_lens, most)
        committed = batch.seq_lens_cpu, batch.seq_lens_sum
        if batch.seq_lens_cpu is not None:
            batch.seq_lens_cpu = batch.seq_lens_cpu + trees.nodes
            batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
        else:
            batch.seq_lens_cpu, batch.seq_lens_sum = draft_input.reserved_seq_lens_cpu, most
        batch.out_cache_loc = slots.reshape(-1)
        topk = self.server_args.speculative_eagle_topk
        verify = DDTreeVerifyInput.of(trees, positions, mask, self.ddtree.depth, topk, batch)
        forward_batch = verify.prepare(batch, self.target_worker)
        batch.seq_lens_cpu, batch.seq_lens_sum = committed
        return self.target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
        )

    def _write_draft_cache(
        self, hidden: torch.Tensor, commit: Commit, positions: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """The drafter's K/V rows of the committed tokens, from the target's features of the accepted nodes."""
        block_slots = slots[:, : self.block_size].contiguous()
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=hidden.index_select(0, commit.rows.flatten()),
            cache_loc=block_slots.view(-1),
            cache_loc_2d=block_slots,
            positions=positions.reshape(-1),
            commit_lens=commit.walks.lengths,
        )


def draft_args(server_args: Any, settings: config.Config) -> Any:
    """The arguments of the draft runner: a DFLASH chain of one block, as draft and target read the same fields."""
    args = copy.deepcopy(server_args)
    args.__dict__.pop("max_speculative_num_draft_tokens", None)  # cached from the target's width
    args.override(
        "ddtree.draft",
        speculative_algorithm="DFLASH",
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=settings.block_size,
    )
    return args
