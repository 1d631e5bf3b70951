from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from server_process import command, served
from tiny import tiny_pair


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tiny_pair(tmp_path_factory.mktemp("pair"))


def refused(argv: list[str]) -> str:
    """The only line that a server which cannot start prints."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--method", "magic"], "argument --method: invalid choice: 'magic'"),
        ([], "the following arguments are required: --method"),
        (["--method", "dflash", "--bugdet", "3"], "unrecognized arguments: --bugdet 3"),
        (["--method", "dflash", "--budget", "3"], "argument --budget: belongs to method ddtree, not dflash"),
        (["--method", "autoregressive", "--shadow"], "argument --shadow: belongs to method ddtree"),
        (["--method", "ddtree", "--budget", "0"], "argument --budget: must be at least 1, not 0"),
        (["--method", "ddtree", "--budget", "many"], "argument --budget: invalid whole number value: 'many'"),
        (["--method", "dflash", "--drafter", "/nowhere"], "argument --drafter: /nowhere does not exist"),
    ],
)
def test_bad_flags_are_one_line(folders: tuple[Path, Path], flags: list[str], message: str) -> None:
    assert message in refused(command("--port", 0, "--target", folders[0], *flags))


def test_target_without_tokenizer_is_one_line(tmp_path: Path) -> None:
    line = refused(command("--port", 0, "--target", tmp_path, "--method", "autoregressive"))
    assert line == f"error: {tmp_path / 'tokenizer.json'}: no such file"


@pytest.mark.slow
def test_what_the_engine_refuses_is_one_line(folders: tuple[Path, Path], tmp_path: Path) -> None:
    other = tiny_pair(tmp_path / "other", hidden=16)[1]
    argv = command("--port", 0, "--target", folders[0], "--method", "dflash", "--drafter", other)
    assert "hidden_size" in refused(argv)


def test_taken_port_is_one_line(folders: tuple[Path, Path]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(command("--port", port, "--target", folders[0], "--method", "autoregressive"))
    assert line == f"error: port {port} on 127.0.0.1: Address already in use"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_in_the_middle_of_an_answer(
    folders: tuple[Path, Path], tmp_path: Path, number: signal.Signals
) -> None:
    argv = command("--port", 0, "--target", folders[0], "--method", "autoregressive")
    with served(tmp_path / "log", argv) as server:
        params = {"max_new_tokens": 4000, "ignore_eos": True}
        response = server.open(
            "POST", "/generate", {"text": "x", "stream": True, "sampling_params": params}
        ).getresponse()
        assert response.read(10)
        server.process.send_signal(number)
        assert server.process.wait(timeout=30) == 0
        assert server.log.read_text().endswith(f"ended by {number.name}\n")


BROKEN = """
import asyncio, sys, time
from pathlib import Path
from ddtree.engine.server import listen, serve
from ddtree.models import Tokenizer


class Broken:
    has_work = False

    def add(self, request):
        self.has_work = True

    def abort(self, rid):
        pass

    def step(self):
        if self.has_work:
            raise RuntimeError("the forward pass broke")
        return []

    def info(self):
        return {"context_length": 100}


asyncio.run(serve(Broken, Tokenizer(Path(sys.argv[1])), listen("127.0.0.1", 0), "broken", time.time()))
"""


def test_engine_that_dies_takes_the_process_with_it_and_says_why(folders: tuple[Path, Path], tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(textwrap.dedent(BROKEN))
    with served(tmp_path / "log", [sys.executable, str(script), str(folders[0])]) as server:
        assert server.request("GET", "/health")[0] == 200
        with pytest.raises((OSError, json.JSONDecodeError)):
            server.request("POST", "/generate", {"text": "x"})
        assert server.process.wait(timeout=30) == 1
        log = server.log.read_text()
    assert log.endswith("RuntimeError: the forward pass broke\n")
    assert "Traceback" in log
