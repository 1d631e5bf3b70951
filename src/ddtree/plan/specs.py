"""Spec files: what one job depends on, as a file whose time changes only when its content does.

Snakemake compares times, so a spec file is how it learns that a part of the plan changed, and a session's spec is also
how it learns that a manifest has become untrue (a cell was deleted, say): then `requested_unix` is renewed.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ddtree.files import write_if_changed
from ddtree.plan.keys import PROMPT_KEYS, CellId, cells, resolved
from ddtree.plan.layout import Layout
from ddtree.plan.schema import Model, Plan, Server, Workload
from ddtree.workloads.prompts import VERSION as PROMPTS_VERSION


class Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def text(self) -> str:
        """As JSON. Unset keys are left out, so that a new optional key of the schema renews nothing."""
        return self.model_dump_json(indent=1, exclude_none=True) + "\n"


class ModelSpec(Spec):
    name: str
    model: Model


class PromptsSpec(Spec):
    name: str
    model: str
    seed: int
    version: int  # of the code that builds prompts
    workload: Workload  # only the keys that shape prompts differ from their defaults


class SessionSpec(Spec):
    plan: str
    name: str
    server: Server
    workloads: dict[str, Workload]  # resolved
    cells: list[tuple[str, int]]  # (workload, concurrency) in measuring order
    baseline: bool  # whether answers of audited workloads are scored
    max_failed_starts: int
    cell_attempts: int
    ports: tuple[int, int]
    requested_unix: float = 0.0

    def cell_ids(self) -> list[CellId]:
        return [CellId(self.name, workload, concurrency) for workload, concurrency in self.cells]

    def audited(self, workload: str) -> bool:
        return self.baseline and self.workloads[workload].audit


def prompts_spec(plan: Plan, model: str, workload: str) -> PromptsSpec:
    shape = Workload.model_validate(plan.workloads[workload].model_dump(include=PROMPT_KEYS))
    return PromptsSpec(name=workload, model=model, seed=plan.seed, version=PROMPTS_VERSION, workload=shape)


def session_spec(plan: Plan, server: str) -> SessionSpec:
    return SessionSpec(
        plan=plan.plan,
        name=server,
        server=plan.servers[server],
        workloads={name: resolved(plan, name) for name in plan.workloads},
        cells=[(cell.workload, cell.concurrency) for cell in cells(plan, server)],
        baseline=server == plan.baseline,
        max_failed_starts=plan.max_failed_starts,
        cell_attempts=plan.cell_attempts,
        ports=plan.ports,
    )


def used_models(plan: Plan) -> list[str]:
    return list(dict.fromkeys(server.model for server in plan.servers.values()))


def write_inputs(plan: Plan, layout: Layout) -> None:
    """Specs of models, prompts and single cells, and the whole plan for the report."""
    write_if_changed(layout.plan_spec, plan.model_dump_json(indent=1) + "\n")
    for model in used_models(plan):
        spec = ModelSpec(name=model, model=plan.models[model])
        write_if_changed(layout.model_spec(model), spec.text())
        for workload in plan.workloads:
            write_if_changed(layout.prompts_spec(model, workload), prompts_spec(plan, model, workload).text())
    for server in plan.servers:
        whole = session_spec(plan, server)
        for cell in cells(plan, server):
            part = {
                "server": whole.server.model_dump(mode="json"),
                "workload": whole.workloads[cell.workload].model_dump(mode="json", exclude={"concurrency"}),
                "audited": whole.audited(cell.workload),
            }
            write_if_changed(layout.cell_spec(server, cell.name), json.dumps(part, indent=1) + "\n")


def write_session(spec: SessionSpec, path: Path, request_unix: float | None) -> None:
    """Write the session's spec if its content changed, or anew when its cells are requested at `request_unix`."""
    if request_unix is None:
        try:
            before = SessionSpec.model_validate_json(path.read_bytes()).requested_unix
        except (OSError, ValidationError):
            before = 0.0
        request_unix = before
    write_if_changed(path, spec.model_copy(update={"requested_unix": request_unix}).text())
