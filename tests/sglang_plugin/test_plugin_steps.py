"""The device work of a step on the CPU, driven by a toy target that is a function of its context."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddtree.sglang_plugin import accept, sampler
from ddtree.sglang_plugin.config import Config
from ddtree.sglang_plugin.sampler import Head, TreeSampler, gathered, prune, target_head
from ddtree.sglang_plugin.tree import Shortlist, Trees, Walks, build_trees, shortlist, walk
from ddtree.sglang_plugin.worker_base import Sampling, TreeSteps

VOCABULARY, HIDDEN, BLOCK = 13, 6, 5
GREEDY = Sampling(None)


def config(budget: int, topk: int = 3, rows: int | None = None, shadow: bool = False) -> Config:
    return Config(budget, topk, BLOCK, rows or max(BLOCK, budget + 1), None, shadow)


def head() -> Head:
    return Head(torch.randn(VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(7)), 0)


def target(context: list[int]) -> torch.Tensor:
    """Logits after a context: a fixed function of its last tokens, so that trees are sometimes right."""
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(hash(tuple(context[-3:])) % 2**31))


def autoregressive(prompt: list[int], tokens: int) -> list[int]:
    context = list(prompt)
    for _ in range(tokens):
        context.append(int(target(context).argmax()))
    return context[len(prompt) :]


def path(trees: Trees, request: int, node: int) -> list[int]:
    tokens: list[int] = []
    while node:
        tokens.insert(0, int(trees.tokens[request, node]))
        node = int(trees.parents[request, node])
    return tokens


def drafts(context: list[int]) -> torch.Tensor:
    """Hidden states of a block whose head gives the target's next tokens some of the time. [BLOCK, HIDDEN]"""
    noise = torch.Generator().manual_seed(len(context))
    weight, states, known = head().weight, [torch.zeros(HIDDEN)], list(context)
    for _ in range(BLOCK - 1):
        token = int(target(known).argmax())
        known.append(token)
        states.append(2 * weight[token] + torch.randn(HIDDEN, generator=noise))
    return torch.stack(states)


def decode(prompts: list[list[int]], settings: Config, tokens: int) -> tuple[list[list[int]], list[list[int]], Any]:
    """Answers, lengths of every step, and the last shadow scores, of requests that share batches."""
    steps = TreeSteps(head(), settings, len(prompts), len(prompts) + 2, seed=1)
    slots = torch.arange(1, len(prompts) + 1)
    steps.begin(slots)
    contexts = [p + autoregressive(p, 1) for p in prompts]
    lengths, scores = [], []
    while min(len(c) - len(p) for c, p in zip(contexts, prompts, strict=True)) < tokens:
        ids = torch.tensor([[c[-1], *[0] * (BLOCK - 1)] for c in contexts]).flatten()
        steps.sampler(torch.cat([drafts(c) for c in contexts]), ids)
        trees = steps.sampler.trees[: len(contexts)]
        seq_lens = torch.tensor([len(c) - 1 for c in contexts])
        positions, mask = steps.layout(trees, seq_lens, int(seq_lens.sum()) + 8)
        assert positions.view(len(contexts), -1)[:, 0].tolist() == seq_lens.tolist()
        assert mask.numel() >= int((trees.nodes * (seq_lens + trees.nodes)).sum())
        logits = torch.stack([
            target(c + path(trees, r, node)) for r, c in enumerate(contexts) for node in range(trees.nodes)
        ])  # fmt: skip
        commit = steps.accept(trees, logits, seq_lens, slots, GREEDY)
        assert torch.equal(commit.seq_lens, seq_lens + commit.walks.lengths)
        lengths.append(commit.walks.lengths.tolist())
        scores.append(None if commit.shadow is None else commit.shadow.tolist())
        for r, context in enumerate(contexts):
            context += commit.walks.tokens[r, : int(commit.walks.lengths[r])].tolist()
    return [c[len(p) :] for c, p in zip(contexts, prompts, strict=True)], lengths, scores


PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


@pytest.mark.parametrize("settings", [config(4, 1), config(4), config(12), config(2, rows=5), config(30, 4)])
def test_answers_are_the_autoregressive_ones(settings: Config) -> None:
    answers, lengths, _ = decode(PROMPTS, settings, 40)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer == autoregressive(prompt, len(answer))
    assert max(max(step) for step in lengths) > 1  # or nothing was ever accepted


def test_a_wider_tree_accepts_more() -> None:
    chain, tree = (decode([PROMPTS[0]], config(b, k), 60)[1] for b, k in ((4, 1), (30, 4)))
    assert len(tree) < len(chain)


def test_one_candidate_is_the_chain_of_arg_maxes() -> None:
    sample = TreeSampler(head(), config(4, 1), 2)
    hidden = torch.randn(2 * BLOCK, HIDDEN, generator=torch.Generator().manual_seed(3))
    sample(hidden, torch.tensor([9, 0, 0, 0, 0, 8, 0, 0, 0, 0]))
    best = (hidden.view(2, BLOCK, HIDDEN)[:, 1:] @ head().weight.T).argmax(-1)
    assert torch.equal(sample.trees.tokens, torch.cat([torch.tensor([[9], [8]]), best], 1))
    assert sample.trees.parents.tolist() == [[0, 0, 1, 2, 3]] * 2


def test_shadow_verifies_the_chain_and_scores_what_the_tree_would_have_accepted() -> None:
    answers, lengths, scores = decode(PROMPTS[:1], config(30, 4, rows=5, shadow=True), 60)
    chain_answers, chain_lengths, _ = decode(PROMPTS[:1], config(4, 1), 60)
    assert (answers, lengths) == (chain_answers, chain_lengths)
    depth = BLOCK - 1
    assert [s[0] for s in scores[: depth - 1]] == [0] * (depth - 1)
    # The score of step i + depth - 1 is that of the tree of step i: rebuilt here, walked along the answer.
    at, context = 0, PROMPTS[0] + autoregressive(PROMPTS[0], 1)
    for i, (accepted,) in enumerate(lengths[: len(lengths) - depth]):
        trees = TreeSampler(head(), config(30, 4), 1)
        trees(drafts(context), torch.tensor([context[-1], *[0] * (BLOCK - 1)]))
        walks = Walks.empty(1, BLOCK, "cpu")
        follow = torch.stack([target(context + path(trees.trees, 0, n)).argmax() for n in range(31)]).unsqueeze(0)
        walk(trees.trees, follow, walks)
        assert scores[i + depth - 1][0] == int(walks.lengths[0])
        at += accepted
        context = PROMPTS[0] + answers[0][: 1 + at]


def test_a_slot_that_a_new_request_takes_is_forgotten() -> None:
    steps = TreeSteps(head(), config(8, rows=5, shadow=True), 1, 3, seed=1)
    slots, scores = torch.tensor([2]), []
    for i in range(2 * BLOCK):
        if i == BLOCK:
            steps.begin(slots)
        steps.sampler(drafts([1, 2, i]), torch.tensor([i % VOCABULARY, 0, 0, 0, 0]))
        logits = torch.randn(BLOCK, VOCABULARY, generator=torch.Generator().manual_seed(i))
        commit = steps.accept(steps.sampler.trees[:1], logits, torch.tensor([3]), slots, GREEDY)
        assert commit.shadow is not None
        scores.append(int(commit.shadow))
    undecided = [score == 0 for score in scores]
    assert undecided == [True, True, True, False, False] * 2


def test_pruned_trees_are_those_of_the_smaller_budget() -> None:
    tokens = torch.arange(24).view(2, 4, 3)
    scores = torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(2)).sort(-1, descending=True).values - 1.1
    roots, wide, small = torch.tensor([100, 101]), Trees.empty(2, 9, "cpu"), Trees.empty(2, 5, "cpu")
    build_trees(tokens, scores, roots, wide)
    build_trees(tokens, scores, roots, small)
    prune(wide, 5)
    for name in ("tokens", "parents", "depths", "first_child", "next_sibling"):
        assert torch.equal(getattr(wide, name)[:, :5], getattr(small, name))
    assert wide.tokens[:, 5:].tolist() == [[100] * 4, [101] * 4]
    assert (wide.first_child[:, 5:] == -1).all()


def test_ranks_that_share_the_vocabulary_find_the_same_candidates() -> None:
    logits = torch.randn(4, VOCABULARY, generator=torch.Generator().manual_seed(5))
    parts = [shortlist(logits[:, :7], 3), shortlist(logits[:, 7:], 3, first_id=7)]
    merged = [sampler.merge(part) for part in parts]

    class Group:
        """Rank 0 of two, with rank 1's tensors at hand."""

        world_size = 2

        def all_gather_into_tensor(self, out: torch.Tensor, own: torch.Tensor) -> None:
            field = next(n for n in ("logits", "ids", "lse") if torch.equal(getattr(merged[0], n), own))
            out.copy_(torch.cat([own, getattr(merged[1], field)]))

    both: Shortlist = sampler.merge(gathered(merged[0], Group()))
    whole = sampler.merge(shortlist(logits, 3))
    assert torch.equal(both.ids, whole.ids)
    torch.testing.assert_close(both.lse, whole.lse)


def test_warm_requests_follow_the_targets_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]]).repeat(20000, 1)
    sampling = SimpleNamespace(
        is_all_greedy=False, need_top_k_sampling=False, need_top_p_sampling=False, need_min_p_sampling=False,
        temperatures=torch.full((10000, 1), 2.0),
    )  # fmt: skip
    chosen = accept.choices(logits, sampling, 2, torch.tensor([3]), 1, None)
    assert chosen.shape == (10000, 2)
    expected = 20000 * torch.softmax(logits[0] / 2, -1)
    observed = torch.bincount(chosen.flatten(), minlength=3)
    assert float(((observed - expected) ** 2 / expected).sum()) < 13.8  # chi-square, 2 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (SimpleNamespace(lm_head=None, config=SimpleNamespace()), "no unquantised lm_head"),
        (
            SimpleNamespace(lm_head=SimpleNamespace(weight=torch.zeros(1)), config=SimpleNamespace(logit_scale=0.5)),
            r"scales its logits \(logit_scale",
        ),
    ],
)
def test_heads_whose_logits_are_not_one_product_are_refused(model: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        target_head(model, SimpleNamespace(world_size=1))


def test_only_the_real_part_of_a_padded_head_is_used() -> None:
    shard = SimpleNamespace(num_added_elements=0, num_org_elements=3, org_vocab_start_index=6)
    lm_head = SimpleNamespace(weight=torch.zeros(4, 2), shard_indices=shard)
    found = target_head(SimpleNamespace(lm_head=lm_head, config=SimpleNamespace()), SimpleNamespace(world_size=2))
    assert (found.weight.shape[0], found.first_id) == (3, 6)


def test_caches_that_keep_no_row_per_slot_are_refused() -> None:
    inner = SimpleNamespace(data_ptrs=torch.zeros(2), data_strides=torch.ones(2), use_hnd=False)
    assert accept.row_buffers(SimpleNamespace(full_kv_pool=inner))[0] is inner.data_ptrs
    with pytest.raises(ValueError, match="DDTREE: the K/V cache SimpleNamespace is not supported"):
        accept.row_buffers(SimpleNamespace(use_hnd=True, data_ptrs=None))
