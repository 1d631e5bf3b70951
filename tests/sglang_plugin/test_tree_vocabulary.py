from __future__ import annotations

from types import ModuleType

import pytest
import torch
from kernel_modules import IMPLEMENTATIONS, kernels, reference, tl, triton

from ddtree.sglang_plugin import tree as device_tree
from ddtree.sglang_plugin.tree import Shortlist, Trees, Walks, vocabulary

both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda module: module.__name__.split(".")[-1])


LIMIT_4 = 18.5  # of chi-square with 4 degrees of freedom: exceeded once in a thousand


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small vocabulary, which the interpreter can take, has several chunks."""
    monkeypatch.setattr(vocabulary, "CHUNK", 512)


def random_logits(rows: int, vocab: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """bfloat16 rounds many of them to equal values: ties within and across chunks."""
    return (torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 2).to(dtype)


def ranked(row: torch.Tensor, k: int) -> list[int]:
    values = row.float().tolist()
    return sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]


@both
@pytest.mark.parametrize(
    ("vocab", "k", "dtype"), [(1300, 5, torch.bfloat16), (512, 1, torch.float32), (1025, 4, torch.float16)]
)
def test_best_tokens_and_log_probs_are_those_of_the_whole_row(
    implementation: ModuleType, vocab: int, k: int, dtype: torch.dtype
) -> None:
    x = random_logits(3, vocab + 5, dtype)[:, :vocab]  # rows that do not follow each other directly
    best = implementation.merge(implementation.shortlist(x, k, 0))
    expected = x.float().log_softmax(-1)
    for row in range(len(x)):
        assert best.ids[row, 0].tolist() == ranked(x[row], k)
    found = device_tree.log_probs(best)
    torch.testing.assert_close(found, expected.gather(1, best.ids[:, 0]), atol=1e-5, rtol=1e-5)
    assert (found <= 0).all()


@both
def test_shards_of_the_vocabulary_merge_to_the_result_of_one(implementation: ModuleType) -> None:
    x = random_logits(2, 1500, torch.bfloat16)
    whole = implementation.merge(implementation.shortlist(x, 8, 0))
    shards = [
        implementation.merge(implementation.shortlist(x[:, a:b], 8, a)) for a, b in ((0, 600), (600, 603), (603, 1500))
    ]
    gathered = Shortlist(*(torch.cat([getattr(s, n) for s in shards], 1) for n in ("logits", "ids", "lse")))
    together = implementation.merge(gathered)
    assert torch.equal(together.ids, whole.ids)
    assert torch.equal(together.logits, whole.logits)
    torch.testing.assert_close(together.lse, whole.lse)


@both
def test_a_certain_token_has_log_prob_zero_and_a_masked_or_broken_one_minus_infinity(
    implementation: ModuleType,
) -> None:
    x = torch.full((3, 1200), -torch.inf)
    x[0, 1150] = 3.0
    x[1, 7], x[1, 8] = torch.nan, 1.0
    best = implementation.merge(implementation.shortlist(x, 2, 0))
    assert best.ids[:2, 0, 0].tolist() == [1150, 8]
    assert device_tree.log_probs(best).tolist() == [[0.0, -torch.inf], [0.0, -torch.inf], [-torch.inf] * 2]
    assert ((best.ids >= 0) & (best.ids < 1200)).all()


def test_kernel_and_reference_agree() -> None:
    x = random_logits(2, 1200, torch.float32)
    a, b = (module.merge(module.shortlist(x, 16, 100)) for module in (kernels, reference))
    assert torch.equal(a.ids, b.ids)
    assert torch.equal(a.logits, b.logits)
    torch.testing.assert_close(a.lse, b.lse)


def test_more_candidates_than_the_kernel_searches_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed: 1 to 32"):
        kernels.shortlist(torch.zeros(1, 100), 33, 0)


@both
def test_temperature_zero_takes_the_lowest_id_of_the_best(implementation: ModuleType) -> None:
    x = torch.zeros(2, 1200)
    x[0, [30, 1170]] = 2.0
    x[1, 1199] = 1.0
    chosen = implementation.sample_rows(x, torch.zeros(2), torch.tensor([3]))
    assert chosen.tolist() == [30, 1199]


def chi_square(counts: torch.Tensor, law: torch.Tensor) -> float:
    expected = law * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_the_reference_samples_with_the_law_of_the_tempered_softmax() -> None:
    logits, temperature, n = torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5, -20.0]), 0.7, 20_000
    drawn, again = (
        reference.sample_rows(logits.repeat(n, 1), torch.full((n,), temperature), torch.tensor([seed]))
        for seed in (11, 12)
    )
    law = (logits / temperature).softmax(0)
    assert chi_square(torch.bincount(drawn, minlength=6)[:5].float(), law[:5]) < LIMIT_4
    same = float((drawn == again).float().mean())
    assert abs(same - float((law**2).sum())) < 0.02  # another seed draws independently


@triton.jit
def log_waits(SEED, OUT, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.arange(0, COLUMNS)
    tl.store(OUT + tl.program_id(0) * COLUMNS + column, vocabulary._log_waits(tl.load(SEED), tl.program_id(0), column))


def kernel_noise(seed: int, rows: int, columns: int) -> torch.Tensor:
    out = torch.empty(rows, columns)
    log_waits[(rows,)](torch.tensor([seed]), out, COLUMNS=columns)
    return out


def test_the_kernels_noise_is_exponential_and_differs_between_rows_columns_and_seeds() -> None:
    a, b = (kernel_noise(seed, 2, 8192) for seed in (7, 8))
    assert len(torch.cat([a, b]).unique()) > 0.99 * 4 * 8192
    uniform = -torch.expm1(-a.exp()).flatten()
    assert chi_square(uniform.mul(5).long().bincount(minlength=5).float(), torch.full((5,), 0.2)) < LIMIT_4
    logits = torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5])
    drawn = (logits - b[:, :8190].reshape(-1, 5)).argmax(1)
    assert chi_square(drawn.bincount(minlength=5).float(), logits.softmax(0)) < LIMIT_4


def test_the_kernel_samples_the_shortest_wait_over_all_chunks() -> None:
    x, temperatures = random_logits(3, 1400, torch.bfloat16), torch.tensor([0.5, 1.5, 4.0])
    noise = kernel_noise(9, 3, 2048)[:, :1400]
    expected = (x.float() / temperatures.unsqueeze(1) - noise).argmax(1)
    assert torch.equal(kernels.sample_rows(x, temperatures, torch.tensor([9])), expected)
    assert not torch.equal(expected, x.float().argmax(1))


def target_row(prefix: tuple[int, ...]) -> list[float]:
    """A toy target over three tokens whose next token depends on everything before it."""
    weights = [1 + (7 * sum((i + 2) * t for i, t in enumerate(prefix)) + 3 * token) % 5 for token in range(3)]
    return [w / sum(weights) for w in weights]


def test_sampling_every_node_and_walking_has_the_targets_law() -> None:
    """Two tokens per request, the second by another step where the tree's first was rejected."""
    n, root = 3000, 0
    trees = Trees.empty(1, 4, "cpu")
    probs = torch.tensor([[[-0.2, -1.9], [-0.4, -1.2]]])
    reference.build_trees(torch.tensor([[[1, 2], [1, 0]]]), probs, torch.tensor([root]), trees)
    prefixes: list[tuple[int, ...]] = [()]
    for node in range(1, 4):
        prefixes.append((*prefixes[int(trees.parents[0, node])], int(trees.tokens[0, node])))
    x = torch.tensor([target_row(p) for p in prefixes]).log().repeat(n, 1)
    choices = reference.sample_rows(x, torch.ones(len(x)), torch.tensor([5])).view(n, 4)
    out = Walks.empty(n, 3, "cpu")
    many = Trees(*(getattr(trees, f).repeat(n, 1) for f in Trees.__dataclass_fields__))
    reference.walk(many, choices, out)
    first = out.tokens[:, 0]
    rest = torch.tensor([target_row((t,)) for t in first.tolist()]).log()
    second = torch.where(
        out.lengths > 1, out.tokens[:, 1], reference.sample_rows(rest, torch.ones(n), torch.tensor([6]))
    )
    law = torch.tensor([target_row(())[a] * target_row((a,))[b] for a in range(3) for b in range(3)])
    assert float((out.lengths > 1).float().mean()) > 0.3  # the tree matters
    assert chi_square(torch.bincount(first * 3 + second, minlength=9).float(), law) < 26.1  # 8 degrees of freedom
