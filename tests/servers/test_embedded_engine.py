"""The real engine with a tiny random model: start, measure, score, stop."""

import sys
from pathlib import Path

import pytest
from fakes import PORTS, Files
from tiny import tiny_pair

from ddtree.bench.acceptance import acceptance
from ddtree.bench.client import measure, warm_up
from ddtree.bench.records import Conversation, PromptSet
from ddtree.bench.scoring import score
from ddtree.plan.schema import Server, Workload
from ddtree.servers import ServerFailed, start

pytestmark = pytest.mark.slow
WORKLOAD = Workload(source="s", max_new_tokens=12)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(*tiny_pair(tmp_path_factory.mktemp("tiny")))


def prompts() -> PromptSet:
    conversations = [
        Conversation(id=f"c{i}", category="x", turns=[list(range(5 + i, 30 + i)), [1, 7, 9], [1, 8]]) for i in range(3)
    ]
    warmup = [Conversation(id="w", category="x", turns=[[40, 41, 42]])]
    return PromptSet(
        workload="w", model="tiny", spec_hash="", source="", stop_token_ids=[2], warmup=warmup,
        conversations=conversations, sha256="",
    )  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {"method": "autoregressive"},
        {"method": "dflash", "draft_window": 16},
        {"method": "ddtree", "budget": 7, "topk": 4, "shadow": True},
    ],
    ids=lambda keys: "-".join(map(str, keys.values())),
)
async def test_a_run_is_measured_and_its_greedy_answers_are_the_best_tokens(
    keys: dict[str, object], files: Files, tmp_path: Path, lease_dir: Path
) -> None:
    server = Server.model_validate({"model": "tiny", "threads": 1, "context_length": 256} | keys)
    with start("arm", server, files, Path(sys.executable), tmp_path / "log", PORTS, "test") as running:
        assert not [r.failure for r in await warm_up(running.url, prompts(), WORKLOAD, 2) if r.failure]
        run = await measure(running.url, prompts(), WORKLOAD, 2, 0)
        audits = await score(running.url, run, prompts())
        assert running.alive()
    assert [r.failure for r in run.requests] == [None] * 9
    assert run.flushed
    assert [[best for best, *_ in audit.top] for audit in audits] == [r.output_ids for r in run.requests]
    found = acceptance(run.requests)
    assert (found is None) == (server.method == "autoregressive")
    assert found is None or found.tau >= 1
    assert found is None or (found.shadow_tau is not None) == server.shadow


@pytest.mark.parametrize(
    ("keys", "target", "category", "said"),
    [
        ({"method": "dflash", "draft_tokens": 500}, None, "crash_in_load", "500"),
        ({"method": "autoregressive"}, "nowhere", "missing_model", "nowhere does not exist"),
    ],
)
def test_the_engine_s_own_refusal_is_the_reason(
    files: Files, tmp_path: Path, lease_dir: Path, keys: dict[str, object], target: str | None, category: str, said: str
) -> None:
    server = Server.model_validate({"model": "tiny"} | keys)
    chosen = Files(tmp_path / target) if target else files
    with pytest.raises(ServerFailed) as failed:
        start("arm", server, chosen, Path(sys.executable), tmp_path / "log", PORTS, "test")
    assert failed.value.reason.category == category
    assert failed.value.reason.detail.startswith("error: ")
    assert said in failed.value.reason.detail
