"""Runs inside an interpreter that has SGLang: what can be done with the real release and no GPU. Prints `ok NAME`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.plugins import load_plugins


def registered() -> Any:
    load_plugins()
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    found = SpeculativeAlgorithm.from_string("ddtree")
    assert type(found).__name__ == "DDTreeAlgorithm"
    assert found.is_dflash_family()
    assert not found.is_eagle()
    assert found.supports_overlap
    return found


def hooks_take_and_leave_dflash_alone(algorithm: Any) -> Any:
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
    from sglang.srt.speculative.dflash_info import DFlashVerifyInput
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    worker = algorithm.create_worker(SimpleNamespace(disable_overlap_schedule=False))
    import sglang.srt.model_executor.runner.base_runner as base_runner

    from ddtree.sglang_plugin.verify_info import DDTreeVerifyInput

    mask = torch.ones(7, dtype=torch.bool)
    arguments = SimpleNamespace(speculative_eagle_topk=8, speculative_num_draft_tokens=32)

    def runner(spec: Any, draft: bool) -> Any:
        inner = SimpleNamespace(spec_algorithm=spec, is_draft_worker=draft, server_args=arguments, attn_backend=None)
        return SimpleNamespace(
            model_runner=inner, captured_req_width=32, buffers=SimpleNamespace(custom_mask=mask),
            _capture_ragged_verify_layout=lambda tokens: None,
        )  # fmt: skip

    ours = DecodeCudaGraphRunner.get_spec_info(runner(algorithm, False), 64)
    assert type(ours) is DDTreeVerifyInput
    assert (ours.num_tokens_per_req, ours.topk, ours.custom_mask) == (32, 8, mask)
    assert ours.is_verify_input()
    chain = DecodeCudaGraphRunner.get_spec_info(runner(SpeculativeAlgorithm.DFLASH, True), 64)
    assert type(chain) is DFlashVerifyInput
    assert chain.draft_token_num == 32
    # base_runner holds its own reference to the function.
    assert type(base_runner.create_dummy_verify_input(algorithm, arguments, mask, 32, False)) is DDTreeVerifyInput
    plain = base_runner.create_dummy_verify_input(SpeculativeAlgorithm.DFLASH, arguments, mask, 16, False)
    assert type(plain) is DFlashVerifyInput
    return worker


VOCABULARY, HIDDEN, BLOCK, ROWS, PROMPT = 17, 6, 5, 9, 4


@dataclass
class Pool:
    """Two buffers of K/V rows in the host's memory; row contents tell which token at which position wrote them."""

    rows: torch.Tensor

    @property
    def data_ptrs(self) -> torch.Tensor:
        return torch.tensor([self.rows.data_ptr()], dtype=torch.int64)

    @property
    def data_strides(self) -> torch.Tensor:
        return torch.tensor([16])

    use_hnd = False


def a_step_commits_what_the_target_says(worker_class: Any) -> None:
    """The worker's own step with stand-ins for draft and target: the real class, its real calls, no kernels."""
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.model_executor.forward_batch_info import ForwardMode
    from sglang.srt.speculative.draft_worker_common import make_draft_block_spec_info, make_draft_input_v2

    import ddtree.sglang_plugin.compat.v0516 as module
    from ddtree.sglang_plugin.config import Config
    from ddtree.sglang_plugin.sampler import Head
    from ddtree.sglang_plugin.verify_info import DDTreeVerifyInput
    from ddtree.sglang_plugin.worker_base import TreeSteps

    weight = torch.randn(VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(1))
    table = torch.arange(3 * 64).view(3, 64).flip(0)
    pool = Pool(torch.zeros(3 * 64, 2, dtype=torch.int64))

    def next_token(token: int, position: int) -> int:
        return (5 * token + 3 * position + 1) % VOCABULARY

    def prepare(**given: torch.Tensor) -> None:
        given["block_ids_out"].fill_(0)
        given["block_ids_out"][:, 0] = given["bonus_tokens"]
        positions = given["prefix_lens"].unsqueeze(1) + torch.arange(BLOCK)
        given["positions_out"].copy_(positions)
        given["cache_loc_out"].copy_(given["req_to_token"][given["req_pool_indices"].unsqueeze(1), positions])

    def slots(**given: Any) -> torch.Tensor:
        columns = given["start_offset"].unsqueeze(1) + torch.arange(given["draft_token_num"])
        return given["req_to_token"][given["req_pool_indices"].unsqueeze(1), columns].flatten()

    def draft(forward_batch: Any) -> Any:
        states, roots = [], forward_batch.input_ids.view(-1, BLOCK)[:, 0].tolist()
        for root, start in zip(roots, forward_batch.seq_lens.tolist(), strict=True):
            token, noise = root, torch.Generator().manual_seed(start)
            for i in range(BLOCK):
                states.append(weight[token] * 2 + torch.randn(HIDDEN, generator=noise) if i else weight[token])
                token = next_token(token, start + i)
        shifted = torch.stack(states)
        return SimpleNamespace(can_run_graph=False, logits_output=SimpleNamespace(hidden_states=shifted))

    def verify(batch: Any, forward_batch: Any, is_verify: bool, skip_attn_backend_init: bool) -> Any:
        spec = forward_batch.spec_info
        tokens, at = spec.draft_token.tolist(), spec.positions.tolist()
        pool.rows[forward_batch.out_cache_loc] = torch.stack([spec.draft_token, spec.positions], 1)
        wanted = torch.tensor([next_token(t, p) for t, p in zip(tokens, at, strict=True)])
        logits = torch.nn.functional.one_hot(wanted, VOCABULARY).float()
        hidden = torch.stack([spec.draft_token, spec.positions], 1).float()
        output = SimpleNamespace(next_token_logits=logits, hidden_states=hidden)
        return SimpleNamespace(logits_output=output, can_run_cuda_graph=True)

    module._prepare_dflash_draft_block_unchecked = prepare
    module.assign_extend_cache_locs_func = slots
    module.prepare_mamba_track_for_verify = lambda batch: None
    module.commit_mamba_states_after_verify = lambda *given: None
    torch.get_device_module = lambda device: SimpleNamespace(current_stream=lambda: None)
    torch.Tensor.record_stream = lambda self, stream: None

    def prepared(self: Any, batch: Any, target_worker: Any) -> Any:
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        return SimpleNamespace(spec_info=self, out_cache_loc=batch.out_cache_loc)

    DDTreeVerifyInput.prepare = prepared
    worker = object.__new__(worker_class)
    model = SimpleNamespace(get_input_embeddings=lambda: torch.nn.Embedding(VOCABULARY, HIDDEN))
    worker.model_runner = SimpleNamespace(
        model=model, token_to_kv_pool=pool, req_to_token_pool=SimpleNamespace(req_to_token=table, size=3)
    )
    worker.draft_model_runner = SimpleNamespace(forward=draft)
    worker._target_worker = SimpleNamespace(model_runner=worker.model_runner, forward_batch_generation=verify)
    worker.device, worker.block_size, worker._mask_token_id = "cpu", BLOCK, 0
    worker.use_compact_draft_cache, worker._draft_block_ids_buf = False, None
    worker._draft_block_spec_info = make_draft_block_spec_info(draft_token_num=BLOCK, device="cpu")
    worker.server_args = SimpleNamespace(speculative_eagle_topk=3)
    worker.ddtree = Config(ROWS - 1, 3, BLOCK, ROWS, None, False)
    worker._steps = TreeSteps(Head(weight, 0), worker.ddtree, 3, 3, seed=0)
    written: list[dict[str, Any]] = []
    worker._append_target_hidden_to_draft_kv_by_loc = lambda **given: written.append(given)

    answers, requests = [[2], [11]], torch.tensor([0, 2])
    draft_input = make_draft_input_v2(bonus_tokens=torch.tensor([2, 11]), new_seq_lens=torch.tensor([PROMPT, PROMPT]))
    seq_lens, long = torch.tensor([PROMPT, PROMPT]), 0
    for _ in range(8):
        draft_input.reserved_seq_lens_cpu = (seq_lens + 2 * ROWS).int()
        draft_input.reserved_seq_lens_sum = int(draft_input.reserved_seq_lens_cpu.sum())
        published: list[torch.Tensor] = []
        batch = SimpleNamespace(
            forward_mode=ForwardMode.DECODE, is_extend_in_batch=False, seq_lens=seq_lens, spec_info=draft_input,
            req_pool_indices=requests, seq_lens_cpu=None, seq_lens_sum=None, sampling_info=None,
        )  # fmt: skip
        result = worker.forward_batch_generation(batch, published.append)
        assert isinstance(result, GenerationBatchResult)
        assert batch.seq_lens_cpu is None
        assert result.logits_output.hidden_states is None
        assert torch.equal(published[0], result.new_seq_lens)
        stride = result.speculative_num_draft_tokens
        assert stride == BLOCK
        for r, length in enumerate(result.accept_lens.tolist()):
            long = max(long, length)
            new = result.next_token_ids[r * stride : r * stride + length].tolist()
            # What was verified before the bonus token, with the root, is where a plain sequence keeps it.
            kept = pool.rows[table[requests[r], int(seq_lens[r]) : int(seq_lens[r]) + length]]
            expected = [[t, int(seq_lens[r]) + i] for i, t in enumerate([answers[r][-1], *new[:-1]])]
            assert kept.tolist() == expected
            features = written[-1]["target_hidden"].view(2, BLOCK, 2)[r, :length]
            assert features.tolist() == expected
            answers[r] += new
        seq_lens, draft_input = result.new_seq_lens, result.next_draft_input
    assert long > 1
    for first, answer in zip((2, 11), answers, strict=True):
        token, plain = first, [first]
        for i in range(len(answer) - 1):
            token = next_token(token, PROMPT + i)
            plain.append(token)
        assert answer == plain


def arguments_are_completed(target: str, drafter: str) -> None:
    from sglang.srt.server_args import prepare_server_args

    import ddtree.sglang_plugin.compat.v0516 as module
    from ddtree.sglang_plugin.config import read

    common = [
        "--model-path", target, "--speculative-draft-model-path", drafter, "--grammar-backend", "none",
        "--skip-tokenizer-init", "--speculative-algorithm", "DDTREE", "--speculative-eagle-topk", "8",
    ]  # fmt: skip
    args = prepare_server_args([*common, "--attention-backend", "fa3", "--speculative-num-draft-tokens", "32"])
    assert (args.speculative_num_draft_tokens, args.speculative_eagle_topk, args.speculative_num_steps) == (32, 8, 1)
    assert args.speculative_dflash_block_size == 16
    assert not args.disable_overlap_schedule
    assert args.max_speculative_num_draft_tokens == 32
    draft = module.draft_args(args, read(args, {}, 16))
    assert (draft.speculative_algorithm, draft.speculative_eagle_topk) == ("DFLASH", 1)
    assert draft.max_speculative_num_draft_tokens == 16
    assert (args.speculative_algorithm, args.max_speculative_num_draft_tokens) == ("DDTREE", 32)
    said = ""
    try:
        prepare_server_args([*common, "--speculative-num-draft-tokens", "32"])
    except ValueError as refused:
        said = str(refused)
    assert "--attention-backend is flashinfer; allowed: fa3, triton" in said


if __name__ == "__main__":
    algorithm = registered()
    print("ok registered")
    worker = hooks_take_and_leave_dflash_alone(algorithm)
    print("ok hooks")
    arguments_are_completed(*sys.argv[1:3])
    print("ok arguments")
    a_step_commits_what_the_target_says(worker)
    print("ok step")
