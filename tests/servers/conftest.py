from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import PORTS, Files, fake_python

from ddtree.plan.schema import Server
from ddtree.servers import RunningServer, start


@pytest.fixture
def lease_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "leases"
    monkeypatch.setenv("DDTREE_LEASE_DIR", str(folder))
    return folder


@pytest.fixture
def launch_fake(tmp_path: Path, lease_dir: Path) -> Callable[..., RunningServer]:
    def launch(mode: str, ports: tuple[int, int] = PORTS, **changes: object) -> RunningServer:
        keys: dict[str, object] = {
            "model": "tiny",
            "method": "autoregressive",
            "stop_grace_s": 5,
            "start_timeout_s": 30,
        }
        server = Server.model_validate(keys | changes)
        files = Files(tmp_path / "target", tmp_path / "drafter")
        return start("arm", server, files, fake_python(tmp_path, mode), tmp_path / "server.log", ports, "test")

    return launch
