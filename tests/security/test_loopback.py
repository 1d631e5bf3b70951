"""Servers can be reached from their own machine only."""

import socket
import sys
from pathlib import Path

import psutil
import pytest
from tiny import tiny_pair

from ddtree.models import ModelFiles
from ddtree.plan.schema import Server
from ddtree.servers import ServerFailed, launch, sglang_flags, start

FILES = ModelFiles(target=Path("/m/target"), target_sha256="", tokenizer_sha256="")
PORTS = (17350, 17399)


def own_addresses() -> list[str]:
    """IPv4 addresses of this machine that others can reach."""
    found = [a.address for each in psutil.net_if_addrs().values() for a in each if a.family == socket.AF_INET]
    return [address for address in found if not address.startswith("127.")]


@pytest.mark.slow
def test_a_running_engine_listens_on_loopback_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DDTREE_LEASE_DIR", str(tmp_path / "leases"))
    files = ModelFiles(target=tiny_pair(tmp_path)[0], target_sha256="", tokenizer_sha256="")
    server = Server(model="tiny", method="autoregressive", threads=1, context_length=64)
    with start("arm", server, files, Path(sys.executable), tmp_path / "log", PORTS, "test") as running:
        tree = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
        sockets = [each for process in tree for each in process.net_connections("inet")]
        waiting = [each for each in sockets if each.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)]
        port = int(running.url.rpartition(":")[2])
        assert [tuple(each.laddr) for each in waiting] == [("127.0.0.1", port)]
        for address in own_addresses():
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((address, port), 2)


def test_sglang_is_told_to_listen_on_loopback(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sglang_flags, "unknown", lambda *_: None)  # no SGLang is here to be asked
    words = sglang({}).argv
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--dist-init-addr") + 1].startswith("127.0.0.1:")


@pytest.mark.parametrize("flag", ["host", "dist-init-addr", "config"])
def test_no_plan_can_open_a_server_to_others(flag: str):
    with pytest.raises(ServerFailed, match=f"extra_args: {flag} is set by a key of the server or by the program"):
        sglang({"extra_args": {flag: "0.0.0.0"}})


def sglang(keys: dict[str, object]) -> launch.Command:
    raw = {"engine": "sglang", "model": "m", "method": "autoregressive", "python": "no-such-python", **keys}
    return launch.command("arm", Server.model_validate(raw), FILES, Path("no-such-python"), 19500, "n")
