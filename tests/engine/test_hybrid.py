"""Tree verification of a model with recurrent state: exact for every node, and exact after it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from engines import make_engine, run
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import DEPTH, acceptance_length, audited, engine
from tiny import tiny_pair

from ddtree.engine.api import Sampling
from ddtree.engine.cache import Span
from ddtree.engine.drafter import Drafter
from ddtree.engine.hybrid import HybridCache
from ddtree.engine.recurrent import DeltaState
from ddtree.engine.target import Target
from ddtree.engine.train import drafter as drafters
from ddtree.engine.train.__main__ import train, write
from ddtree.engine.train.hybrid import CONFIG, forward, initial
from ddtree.tree import Tree, chain

VOCAB = CONFIG["vocab_size"]
WEIGHTS = initial(CONFIG, torch.Generator().manual_seed(1))
GREEDY = Sampling(max_new_tokens=32, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hybrid")
    write(made, CONFIG, WEIGHTS)
    return made


@pytest.fixture(scope="module")
def target(folder: Path) -> Target:
    torch.set_num_threads(1)
    return Target(folder, 128, torch.float32, torch.device("cpu"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A hybrid with so few tokens that a random drafter is right now and then."""
    made, config = tmp_path_factory.mktemp("small"), {**CONFIG, "vocab_size": 8}
    write(made / "hybrid", config, initial(config, torch.Generator().manual_seed(2)))
    return made / "hybrid", tiny_pair(made, vocab=8, hidden=96, layers=4, taps=(1, 3), block=6)[1]


def read(target: Target, prompt: list[int]) -> HybridCache:
    """The state after a prompt."""
    cache = target.new_cache(64)
    assert isinstance(cache, HybridCache)
    target.forward([Span(cache, chain(prompt[0], prompt[1:]), len(prompt) - 1)])
    cache.commit(list(range(len(prompt))))
    return cache


def expected(*sequences: list[int]) -> torch.Tensor:
    """Logits [sequences, vocab] after each one, from whole sequences in float64."""
    double = {name: weight.double() for name, weight in WEIGHTS.items()}
    longest = max(map(len, sequences))
    logits, _ = forward(double, CONFIG, torch.tensor([ids + [0] * (longest - len(ids)) for ids in sequences]))
    return logits[range(len(sequences)), [len(ids) - 1 for ids in sequences]]


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), atol=2e-4, rtol=1e-4)


tokens = st.integers(0, VOCAB - 1)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Any tree of up to twelve nodes in which parents precede their children."""
    parents = [-1, *(draw(st.integers(0, i)) for i in range(draw(st.integers(0, 11))))]
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return Tree(tuple(draw(tokens) for _ in parents), tuple(parents), tuple(depths))


def path_to(tree: Tree, node: int) -> list[int]:
    return ([] if tree.parents[node] < 0 else path_to(tree, tree.parents[node])) + [node]


@settings(max_examples=20, deadline=None)
@given(prompt=st.lists(tokens, min_size=1, max_size=9), tree=trees(), last=st.integers(0, 11), after=tokens)
def test_every_node_has_its_paths_logits_and_the_committed_state_is_that_of_a_chain(
    target: Target, prompt: list[int], tree: Tree, last: int, after: int
) -> None:
    cache, other = read(target, prompt), read(target, [5, 6])
    logits, _ = target.forward([Span(other, chain(3, (4,)), 0), Span(cache, tree, 0)])
    paths = [[tree.tokens[i] for i in path_to(tree, node)] for node in range(len(tree))]
    assert close(logits[2:], expected(*(prompt + path for path in paths)))

    path = path_to(tree, last % len(tree))
    cache.commit(path)
    taken = [tree.tokens[node] for node in path]
    alone = read(target, prompt)  # a snapshot from before the tree, continued token by token
    for token in taken:
        target.forward([Span(alone, chain(token, ()), 0)])
        alone.commit([0])
    for state, right in zip(cache.states, alone.states, strict=True):
        assert close(state.memory, right.memory)
        assert close(state.window, right.window)
    rows = slice(0, cache.length)
    assert cache.length == alone.length
    assert close(cache.k[:, :, rows], alone.k[:, :, rows])
    assert close(cache.v[:, :, rows], alone.v[:, :, rows])
    logits, _ = target.forward([Span(cache, chain(after, ()), 0)])
    assert close(logits, expected([*prompt, *taken, after]))


def test_taps_are_the_residual_stream_that_training_sees(target: Target) -> None:
    prompt = [7, 1, 900, 4, 4, 20]
    _, features = target.forward([Span(target.new_cache(16), chain(prompt[0], prompt[1:]), 5)], (3, 0))
    residuals = forward(WEIGHTS, CONFIG, torch.tensor([prompt]))[1]
    assert features is not None
    assert close(features, torch.cat([residuals[3][0], residuals[0][0]], -1))


def prompts() -> list[list[int]]:
    rng = random.Random(11)
    return [[rng.randrange(VOCAB) for _ in range(n)] for n in (2, 5, 9, 14)]


def test_the_audit_clears_exact_tree_verification_of_recurrent_state(folder: Path) -> None:
    verdict, answers = audited(folder, engine(folder, Target, oracle=True), prompts(), GREEDY)
    assert (verdict.compared, verdict.identical, verdict.bug) == (4, 4, 0)
    assert acceptance_length(answers) > DEPTH


@pytest.mark.parametrize("part", ["convolve", "scan"])
def test_a_siblings_state_in_the_next_node_is_a_bug_while_acceptance_looks_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The convolution's inputs, or the matrix state, run on from node to node in the order of the block."""
    # Recurrent layers that weigh less, as in a trained model, whose next token hangs on more than on one of them.
    light = {name: w * (0.15 if name.endswith("linear_attn.out_proj.weight") else 1) for name, w in WEIGHTS.items()}
    write(tmp_path, CONFIG, light)
    arm = engine(tmp_path, Target, oracle=True)
    right, step = getattr(DeltaState, part), arm._target.hidden

    def leaking(state: DeltaState, *args: object) -> torch.Tensor:
        return right(state, *(chain(a.tokens[0], a.tokens[1:]) if isinstance(a, Tree) else a for a in args))

    def hidden(spans: Sequence[Span], taps: Sequence[int] = ()) -> object:
        with pytest.MonkeyPatch.context() as leak:  # the oracle and the baseline stay right
            leak.setattr(DeltaState, part, leaking)
            return step(spans, taps)

    monkeypatch.setattr(arm._target, "hidden", hidden)
    verdict, answers = audited(tmp_path, arm, prompts(), GREEDY)
    assert verdict.bug > 0
    assert verdict.largest_gap is not None
    assert verdict.largest_gap > 10 * verdict.threshold
    assert acceptance_length(answers) > 2.5


def test_a_drafter_proposes_in_the_engine_what_it_proposes_in_training(folder: Path, tmp_path: Path) -> None:
    weights, prompt = drafters.initial(torch.Generator().manual_seed(4)), [9, 80, 3, 77, 41, 6, 500]
    write(tmp_path, drafters.CONFIG, weights)
    target = Target(folder, 128, torch.float32, torch.device("cpu"))
    drafter = Drafter(tmp_path, target, None, 128)
    context = drafter.new_context(32)
    _, features = target.forward([Span(target.new_cache(32), chain(prompt[0], prompt[1:]), 6)], drafters.TAPS)
    assert features is not None
    drafter.extend([context], [features])
    (found,) = drafter.draft([context], [12], drafters.BLOCK - 1, 4)
    logits = drafters.forward(weights, WEIGHTS["model.embed_tokens.weight"], features[None], torch.tensor([12]))
    right = logits[0].log_softmax(-1).topk(4)
    assert found.tokens == right.indices.tolist()
    assert torch.allclose(torch.tensor(found.log_probs), right.values, atol=1e-4)


@pytest.mark.parametrize(("method", "options"), [("dflash", {}), ("ddtree", {"budget": 15}), ("prompt_lookup", {})])
def test_every_method_gives_the_hybrids_own_tokens_in_a_batch(
    small: tuple[Path, Path], method: str, options: dict[str, object]
) -> None:
    few = [[token % 8 for token in prompt] for prompt in prompts()]
    right = run(make_engine(small), few, GREEDY)
    answers = run(make_engine(small, method, **options), few, GREEDY)
    assert [a.ids for a in answers] == [a.ids for a in right]
    assert acceptance_length(answers) > 1.0


def test_training_goes_downhill() -> None:
    weights = {"a": torch.tensor([2.1]), "b": torch.tensor([-2.4])}
    last = train(weights, lambda: (weights["a"] - 2).square().sum() + (weights["b"] + 2.5).square().sum(), 100)
    assert last < 0.01
    assert not weights["a"].requires_grad
