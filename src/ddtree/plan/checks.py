"""Checks across a plan's parts that the schema alone cannot make. Each finding is (path of keys, what is wrong)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddtree.bench.arrivals import BadArrivals, offsets
from ddtree.models.files import block_size
from ddtree.plan.errors import Loc, did_you_mean
from ddtree.plan.schema import TREE_TOPK, Plan, Server
from ddtree.workloads.registry import SOURCES, misfit

Finding = tuple[Loc, str]


def check(plan: Plan, root: Path) -> list[Finding]:
    """Everything wrong with `plan`, whose relative paths start at `root`."""
    return [
        *_arms(plan),
        *_models(plan, root),
        *_servers(plan, root),
        *_workloads(plan, root),
        *_grid(plan),
    ]


def _listed(names: object) -> str:
    return ", ".join(names) if isinstance(names, dict) and names else "none is defined"


def _arms(plan: Plan) -> Iterator[Finding]:
    for key, method, name in (("baseline", "autoregressive", plan.baseline), ("chain", "dflash", plan.chain)):
        if name is None:
            continue
        fitting = {server: 0 for server, spec in plan.servers.items() if spec.method == method}
        if name not in plan.servers:
            hint = did_you_mean(name, list(plan.servers))
            yield (key,), f"no server is called {name}{hint}; allowed (method {method}): {_listed(fitting)}"
        elif name not in fitting:
            found = plan.servers[name].method
            yield (key,), f"{name} has method {found}; allowed (method {method}): {_listed(fitting)}"
    if not plan.workloads:
        yield ("workloads",), "empty; allowed: at least one workload"


def _models(plan: Plan, root: Path) -> Iterator[Finding]:
    for name, model in plan.models.items():
        for part in ("target", "drafter"):
            source = getattr(model, part)
            if source is None or source.path is None:
                continue
            folder = root / source.path
            loc = ("models", name, part, "path")
            if not (folder / "config.json").is_file():
                yield loc, f"{source.path} has no config.json; allowed: a checkpoint folder, relative to {root}"
            elif not any(folder.glob("*.safetensors")):
                yield loc, f"{source.path} has no *.safetensors; allowed: a checkpoint folder, relative to {root}"


def largest_tree(block: int, topk: int) -> int:
    """Nodes besides the root of the complete tree over `block` - 1 drafted depths with `topk` candidates each."""
    depths = block - 1
    return depths if topk == 1 else (topk ** (depths + 1) - topk) // (topk - 1)


def _servers(plan: Plan, root: Path) -> Iterator[Finding]:
    for name, server in plan.servers.items():
        if server.model not in plan.models:
            hint = did_you_mean(server.model, list(plan.models))
            yield ("servers", name, "model"), f"no model {server.model}{hint}; allowed: {_listed(plan.models)}"
            continue
        model = plan.models[server.model]
        if not server.needs_drafter:
            continue
        if model.drafter is None:
            with_one = ", ".join(n for n, m in plan.models.items() if m.drafter) or "none is defined"
            yield (
                ("servers", name, "model"),
                f"method {server.method} needs a drafter and {server.model} has none; allowed: {with_one}",
            )
        elif model.drafter.path and (block := block_size(root / model.drafter.path)):
            yield from _fits_block(name, server, block)


def _fits_block(name: str, server: Server, block: int) -> Iterator[Finding]:
    if server.draft_tokens is not None and server.draft_tokens > block - 1:
        yield (
            ("servers", name, "draft_tokens"),
            f"{server.draft_tokens} is more than the drafter proposes; allowed: 1 to {block - 1} (block size {block})",
        )
    if server.budget is not None:
        topk = server.topk or TREE_TOPK
        most = min(255, largest_tree(block, topk))
        if server.budget > most:
            yield (
                ("servers", name, "budget"),
                f"{server.budget} nodes do not exist at block size {block} and topk {topk}; allowed: 1 to {most}",
            )


def _workloads(plan: Plan, root: Path) -> Iterator[Finding]:
    for name, load in plan.workloads.items():
        at = ("workloads", name)
        if load.source not in SOURCES:
            hint = did_you_mean(load.source, sorted(SOURCES))
            yield (*at, "source"), f"no source {load.source}{hint}; allowed: {', '.join(sorted(SOURCES))}"
        elif fault := misfit(load):
            yield (*at, fault[0]), fault[1]
        elif load.path and not (root / load.path).is_file():
            yield (*at, "path"), f"{load.path} is not a file; allowed: a file that source {load.source} can read"
        if load.arrivals:
            try:
                offsets(load.arrivals, load.prompts, root)
            except BadArrivals as bad:
                yield (*at, "arrivals", "replay"), str(bad)
        if load.prompt_tokens:
            longest = load.prompt_tokens + load.turns * load.max_new_tokens
            for server_name, server in plan.servers.items():
                if longest > server.context_length:
                    yield (
                        (*at, "prompt_tokens"),
                        f"{load.prompt_tokens} prompt tokens and {load.turns} x {load.max_new_tokens} new ones exceed "
                        f"the context_length of {server_name}; allowed: {server.context_length} tokens together",
                    )
                    break


def _grid(plan: Plan) -> Iterator[Finding]:
    lists: list[tuple[Loc, list[int]]] = [(("concurrency",), plan.concurrency)]
    lists += [(("workloads", n, "concurrency"), w.concurrency) for n, w in plan.workloads.items() if w.concurrency]
    for loc, values in lists:
        if len(set(values)) < len(values):
            yield loc, f"{values} names a level twice; allowed: each level once"
        tightest = min(plan.servers, key=lambda name: plan.servers[name].max_running_requests, default=None)
        if tightest and max(values) > (most := plan.servers[tightest].max_running_requests):
            yield (
                loc,
                f"{max(values)} is above max_running_requests of {tightest}, its requests would only queue; "
                f"allowed: 1 to {most}",
            )
    low, high = plan.ports
    if not 1024 <= low <= high <= 65535:
        yield ("ports",), f"[{low}, {high}] is not a range; allowed: two ports from 1024 to 65535, the lower first"
