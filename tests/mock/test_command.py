"""`ddtree mock` as a user starts it."""

import json
import socket
import subprocess
import sys
import urllib.request

import pytest

from ddtree.cli import main


def test_the_program_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "ddtree.mock", "--port", "0", "--lie", "only_done"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url, told = process.stdout.readline().split(maxsplit=1)
            assert told.strip() == "lie: only_done"
            body = json.dumps({"input_ids": [1], "stream": True}).encode()
            asked = urllib.request.Request(f"{url}/generate", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=10) as answer:
                assert answer.read() == b"data: [DONE]\n\n"
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lie", "nothing"], "invalid choice: 'nothing'"),
        (["--tokens", "0"], "must be a number of at least 1"),
        (["--step-s", "nan"], "must be seconds, 0 or more"),
    ],
)
def test_a_bad_argument_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["mock", *arguments])
    assert said in capsys.readouterr().err


def test_a_taken_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["mock", "--port", str(port)]) == 1
    assert f"--port {port}: " in capsys.readouterr().err
