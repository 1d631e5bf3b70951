"""A real `python -m ddtree.engine` process and a plain HTTP client, for tests."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 60.0


def command(*flags: object) -> list[str]:
    return [sys.executable, "-m", "ddtree.engine", *map(str, flags)]


@dataclass
class Served:
    process: subprocess.Popen[str]
    port: int
    log: Path

    def request(self, method: str, path: str, body: object = None) -> tuple[int, dict]:
        """Status and JSON."""
        status, text = self.text(method, path, body)
        return status, json.loads(text)

    def text(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        connection = self.open(method, path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def open(self, method: str, path: str, body: object = None) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection.request(method, path, raw)
        return connection

    def events(self, path: str, body: object) -> list:
        """Every event of a stream, which must end with [DONE]."""
        response = self.open("POST", path, body).getresponse()
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"] == "text/event-stream"
        blocks = response.read().decode().split("\n\n")
        assert blocks[-2:] == ["data: [DONE]", ""]
        return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]

    def metric(self, name: str) -> float:
        """A sample of /metrics; 0 where there is none yet."""
        _, text = self.text("GET", "/metrics")
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        return float(found.group(1)) if found else 0.0

    def wait_for_metric(self, name: str, value: float) -> None:
        deadline = time.monotonic() + START_S
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} stays {self.metric(name)}, not {value}"
            time.sleep(0.02)


@contextmanager
def served(log: Path, argv: list[str], nonce: str = "nonce") -> Iterator[Served]:
    """The running server, once it says that it is ready; killed at the end."""
    with log.open("w") as out:
        environment = {**os.environ, "DDTREE_NONCE": nonce}
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        deadline = time.monotonic() + START_S
        while not (ready := re.search(r"ready after .* on http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield Served(process, int(ready.group(1)), log)
    finally:
        process.kill()
        process.wait()
