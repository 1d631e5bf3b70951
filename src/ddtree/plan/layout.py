"""Where every file lies. The rules, the session and the reports all ask here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """Paths of one plan; relative to `root` (default: the working directory)."""

    plan: str
    root: Path = field(default_factory=Path)

    @property
    def results(self) -> Path:
        return self.root / "results" / self.plan

    @property
    def spec(self) -> Path:
        return self.results / "spec"

    @property
    def plan_spec(self) -> Path:
        return self.spec / "plan.json"

    @property
    def progress(self) -> Path:
        return self.spec / "progress.json"

    def env(self, engine: str) -> Path:
        return self.root / ".envs" / engine / "requirements.lock"

    def lock(self, engine: str) -> Path:
        return self.root / "envs" / engine / "requirements.lock"

    def python(self, env: str, by_hand: str | None = None) -> Path:
        """Interpreter of an environment, or the one that the plan names instead."""
        return self.root / (by_hand or Path(".envs", env, "bin", "python"))

    def model(self, model: str) -> Path:
        return self.root / "models" / model / "model.json"

    def model_spec(self, model: str) -> Path:
        """Beside the model, since plans share it."""
        return self.root / "models" / model / "spec.json"

    def prompts(self, model: str, workload: str) -> Path:
        return self.results / "prompts" / model / f"{workload}.json"

    def prompts_spec(self, model: str, workload: str) -> Path:
        return self.spec / "prompts" / model / f"{workload}.json"

    def session_spec(self, server: str) -> Path:
        return self.spec / "sessions" / f"{server}.json"

    def cell_spec(self, server: str, cell: str) -> Path:
        return self.spec / "cells" / server / f"{cell}.json"

    def cells(self, server: str) -> Path:
        return self.results / "cells" / server

    def cell(self, server: str, cell: str) -> Path:
        """`cell` is '<workload>/c<N>'."""
        return self.cells(server) / f"{cell}.json"

    def manifest(self, server: str) -> Path:
        return self.results / "sessions" / f"{server}.json"

    def session_lock(self, server: str) -> Path:
        return self.root / "run" / "locks" / self.plan / f"{server}.lock"

    def server_logs(self) -> Path:
        return self.root / "logs" / "servers" / self.plan
