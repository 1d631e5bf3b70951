"""Which cells have a result, which failed, which are to do: the truth as the files tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ddtree.bench.records import CellStatus, Manifest, PromptSet
from ddtree.cells import has_result
from ddtree.files import sha256
from ddtree.models.errors import ModelError
from ddtree.models.files import ModelFiles
from ddtree.plan.keys import CellId, cells, depends_on, digest
from ddtree.plan.layout import Layout
from ddtree.plan.schema import Plan
from ddtree.plan.specs import ModelSpec, SessionSpec, Spec, prompts_spec, session_spec

Status = Literal["done", "to do", "failed"]


@dataclass(frozen=True)
class Inputs:
    """What a session's keys need besides its spec: model, environment and prompts, as they lie on disk."""

    spec: SessionSpec
    layout: Layout

    @cached_property
    def files(self) -> ModelFiles:
        return ModelFiles.read(self.layout.model(self.spec.server.model))

    @cached_property
    def lock_sha256(self) -> str:
        server = self.spec.server
        # An environment made by hand is told apart by its path and release, which are keys of the server.
        return "by hand" if server.python else sha256(self.layout.env(server.env))

    def prompts_path(self, workload: str) -> Path:
        return self.layout.prompts(self.spec.server.model, workload)

    def _prompts_sha256(self, workload: str) -> str:
        path = self.prompts_path(workload)
        return _prompts_sha256(path, path.stat().st_mtime_ns)

    def key(self, cell: CellId) -> str:
        """Hash of `depends_on`; raises the same."""
        return digest(self.depends_on(cell))

    def depends_on(self, cell: CellId) -> dict[str, object]:
        """Raises OSError, ValidationError or ModelError while one of the files is missing."""
        return depends_on(
            self.spec.server,
            self.spec.workloads[cell.workload],
            cell.concurrency,
            self._prompts_sha256(cell.workload),
            self.files,
            self.lock_sha256,
            self.spec.audited(cell.workload),
        )


@cache
def _prompts_sha256(path: Path, mtime_ns: int) -> str:
    return PromptSet.model_validate_json(path.read_bytes()).sha256


def to_build(plan: Plan, server: str, layout: Layout) -> dict[str, str]:
    """Workloads whose keys are not known yet, each with the input that is absent or older than what the plan says."""
    spec = plan.servers[server]
    env, lock = layout.env(spec.env), layout.lock(spec.env)
    if not spec.python and (not env.exists() or (lock.exists() and sha256(env) != sha256(lock))):
        return dict.fromkeys(plan.workloads, f"environment {spec.env}")
    model = ModelSpec(name=spec.model, model=plan.models[spec.model])
    if not _made_from(layout.model(spec.model), layout.model_spec(spec.model), model):
        return dict.fromkeys(plan.workloads, f"model {spec.model}")
    return {
        workload: f"prompts {workload}"
        for workload in plan.workloads
        if not _made_from(
            layout.prompts(spec.model, workload),
            layout.prompts_spec(spec.model, workload),
            prompts_spec(plan, spec.model, workload),
        )
    }


def _made_from(output: Path, spec_file: Path, spec: Spec) -> bool:
    try:
        return spec_file.read_text() == spec.text() and output.stat().st_mtime >= spec_file.stat().st_mtime
    except OSError:
        return False


def read_manifest(layout: Layout, server: str) -> Manifest | None:
    try:
        return Manifest.model_validate_json(layout.manifest(server).read_bytes())
    except (OSError, ValidationError):
        return None


def server_state(plan: Plan, server: str, layout: Layout) -> dict[CellId, Status]:
    """Status of each of the server's cells. A cell whose inputs are not built yet, or changed, is to do."""
    wanted, missing = cells(plan, server), to_build(plan, server, layout)
    todo: dict[CellId, Status] = dict.fromkeys(wanted, "to do")
    known = [cell for cell in wanted if cell.workload not in missing]
    try:
        inputs = Inputs(session_spec(plan, server), layout)
        keys = {cell.name: inputs.key(cell) for cell in known}
    except (OSError, ValidationError, ModelError):
        return todo
    return todo | dict(_statuses(server, layout, known, keys))


def _statuses(
    server: str, layout: Layout, wanted: list[CellId], keys: dict[str, str]
) -> Iterator[tuple[CellId, Status]]:
    manifest = read_manifest(layout, server)
    known = manifest.cells if manifest else {}
    for cell in wanted:
        path, key = layout.cell(server, cell.name), keys[cell.name]
        entry = known.get(cell.name)
        if path.exists() and (_vouched(entry, key, path) or has_result(path, key)):
            yield cell, "done"
        elif entry and entry.status == "failed" and entry.key == key:
            yield cell, "failed"


def _vouched(entry: CellStatus | None, key: str, path: Path) -> bool:
    """Whether the manifest knows this very file as the result: hashing is far cheaper than parsing."""
    return entry is not None and entry.key == key and entry.sha256 == sha256(path)


def manifest_is_true(plan: Plan, server: str, layout: Layout, state: dict[CellId, Status]) -> bool:
    """Whether the manifest still tells exactly this state, byte for byte of every result."""
    manifest = read_manifest(layout, server)
    if manifest is None or set(manifest.cells) != {cell.name for cell in state}:
        return False
    for cell, status in state.items():
        entry = manifest.cells[cell.name]
        if (entry.status == "ok") != (status == "done") or status == "to do":
            return False
        if entry.status == "ok" and sha256(layout.cell(server, cell.name)) != entry.sha256:
            return False
    return True
