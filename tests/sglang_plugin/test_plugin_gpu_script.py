"""The GPU script's arithmetic and its way through servers, against servers that answer as SGLang does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import plugin_gpu
import pytest

CHAIN, TREE = [5, 6, 7, 8], [5, 6, 9, 8]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        meta: dict[str, object] = {
            "completion_tokens": 4,
            "spec_verify_ct": 2,
            "spec_correct_drafts_histogram": [1, 0, 1],
        }
        if body.get("return_logprob"):
            meta = {"output_token_ids_logprobs": [[[-0.5, 7, None], [-0.75, 9, None]]]}
        text = json.dumps({"output_ids": TREE, "meta_info": meta}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        """Silence."""


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def test_a_first_difference_comes_with_the_baselines_gap(port: int) -> None:
    answers, _ = plugin_gpu.measure(port, [[1], [2]], 2)
    baseline = [{"output_ids": CHAIN}, {"output_ids": TREE}]
    assert plugin_gpu.differences(port, [[1], [2]], baseline, answers) == [(0, 2, 0.25)]


def test_tokens_per_step_leave_the_prefills_token_out(port: int) -> None:
    answers, _ = plugin_gpu.measure(port, [[1], [2]], 2)
    found = plugin_gpu.row(answers, 2.0, 2)
    assert (found["tok_s"], found["tokens_per_step"], found["ms_per_step"]) == (4.0, 1.5, 1000.0)
    assert found["histogram"] == [2, 0, 2]


def test_every_arm_that_drafts_trees_gives_what_the_plugin_asks_for() -> None:
    for arm in plugin_gpu.ARMS.values():
        flags = arm.flags(Path("/d"))
        assert ("--speculative-eagle-topk" in flags) == (arm.algorithm == "DDTREE")
