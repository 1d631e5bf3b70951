"""The verify input of a tree: what the target's attention needs to know about the rows of a step."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.eagle_info import EagleVerifyInput

from ddtree.sglang_plugin.tree import Trees


class DDTreeVerifyInput(EagleVerifyInput):
    """R trees of N rows each. An EAGLE input, because the attention back-ends know trees by its fields."""

    @property
    def max_tree_depth(self) -> int:
        return int(self.spec_steps) + 1

    @property
    def tree_topk(self) -> int:
        """-1: no fixed branching."""
        return -1

    @classmethod
    def of(
        cls, trees: Trees, positions: torch.Tensor, mask: torch.Tensor, depth: int, topk: int, batch: Any
    ) -> DDTreeVerifyInput:
        """`positions` int64 [R * N]; `mask` as written by ddtree.sglang_plugin.tree.write_mask; `depth` drafts deep."""
        requests, nodes = trees.tokens.shape
        rows = torch.arange(requests * nodes, device=positions.device).view(requests, nodes)
        return cls(
            draft_token=trees.tokens.reshape(-1),
            custom_mask=mask,
            positions=positions,
            retrieve_index=rows,
            retrieve_next_token=trees.first_child,
            retrieve_next_sibling=trees.next_sibling,
            retrieve_cum_len=None,
            spec_steps=depth,
            topk=topk,
            draft_token_num=nodes,
            capture_hidden_mode=CaptureHiddenMode.FULL,
            seq_lens_sum=batch.seq_lens_sum,
            seq_lens_cpu=batch.seq_lens_cpu,
        )

    @classmethod
    def dummy(cls, rows: int, topk: int, mask: torch.Tensor) -> DDTreeVerifyInput:
        """For graph capture and warm-up, where only widths and the presence of a mask count."""
        return cls(
            draft_token=None,
            custom_mask=mask,
            positions=None,
            retrieve_index=None,
            retrieve_next_token=None,
            retrieve_next_sibling=None,
            retrieve_cum_len=None,
            spec_steps=rows - 1,
            topk=topk,
            draft_token_num=rows,
            capture_hidden_mode=CaptureHiddenMode.FULL,
            seq_lens_sum=None,
            seq_lens_cpu=None,
        )

    def prepare(self, batch: Any, target_worker: Any) -> ForwardBatch:
        """The target's forward batch, with the attention's metadata ready for a graph replay or an eager pass.

        `batch.out_cache_loc` must hold the slots of all rows.
        """
        runner = target_worker.model_runner
        batch.input_ids = self.draft_token
        batch.spec_info = self
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        forward_batch = ForwardBatch.init_new(
            batch, runner, capture_hidden_mode=self.capture_hidden_mode, return_hidden_states_before_norm=False
        )
        graphs = runner.decode_cuda_graph_runner
        if graphs and graphs.can_run_graph(forward_batch):
            graphs.load_batch(forward_batch)
        else:
            runner.attn_backend.init_forward_metadata(forward_batch)
        return forward_batch
