"""An engine without a model, for tests of the workflow: right surface, tokens from the prompt, faults on request.

Runs as `fake_engine.py -m ddtree.engine --port N ...`. Faults are files in $DDTREE_TEST_FAULTS, removed when they have
struck: `start.<server>` (its text is printed, then the process exits; `sleep`: it never gets ready), `info.<server>`
(JSON that /server_info says instead of the truth), `request.<server>.<k>` (what happens to the k-th request: `die`,
`hang`, a status such as 500, `empty`, `done`, `cut`, `malformed`, `reset`).
"""

import json
import os
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FAULTS = Path(os.environ["DDTREE_TEST_FAULTS"])
TOKEN_S = float(os.environ.get("DDTREE_TEST_TOKEN_S", "0.001"))
requests, lock = 0, threading.Lock()


def settings(argv: list[str]) -> dict[str, object]:
    found: dict[str, object] = {"shadow": False, "draft_window": None}
    for word, value in zip(argv, [*argv[1:], "--"], strict=True):
        if word.startswith("--"):
            number = value.isdigit() or value.startswith("--")
            found[word[2:].replace("-", "_")] = (int(value) if value.isdigit() else True) if number else value
    return found


def answer(prompt: list[int], tokens: int) -> list[int]:
    return [(prompt[-1] + 7 * i) % 200 + 10 for i in range(tokens)]


def strike(name: str) -> str | None:
    path = FAULTS / name
    if not path.exists():
        return None
    text = path.read_text()
    if not text.startswith("always "):
        path.unlink()
    return text.removeprefix("always ")


def meta(info: dict[str, object], prompt: list[int], made: int, finished: bool) -> dict[str, object]:
    content: dict[str, object] = {
        "id": "r",
        "finish_reason": {"type": "length"} if finished else None,
        "prompt_tokens": len(prompt),
        "completion_tokens": made,
        "cached_tokens": 0,
    }
    if info["method"] != "autoregressive":
        steps = made - 1  # every step accepts nothing and emits its bonus token
        content |= {"spec_verify_ct": steps, "spec_accept_histogram": [steps], "spec_verified_nodes": 8 * steps}
    return content


class Handler(BaseHTTPRequestHandler):
    info: dict[str, object]

    def do_GET(self) -> None:
        self.reply(self.info if self.path == "/server_info" else {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        if self.path != "/generate":
            return self.reply({})
        global requests
        with lock:
            requests += 1
            trouble = strike(f"request.{self.info['served_model_name']}.{requests}")
        if trouble is not None:
            return self.fail(trouble, body["input_ids"])
        prompt, tokens = body["input_ids"], body["sampling_params"]["max_new_tokens"]
        if body.get("return_logprob"):
            scores = [[[-0.1, token, None], [-3.0, 0, None]] for token in prompt[body["logprob_start_len"] :]]
            return self.reply({"meta_info": {"input_top_logprobs": scores}})
        self.send_response(200)
        self.end_headers()
        ids = answer(prompt, tokens)
        for made in range(1, tokens + 1):
            time.sleep(TOKEN_S)
            event = {"text": "x" * made, "output_ids": ids[:made]}
            self.write(json.dumps(event | {"meta_info": meta(self.info, prompt, made, made == tokens)}))
        return self.write("[DONE]")

    def fail(self, trouble: str, prompt: list[int]) -> None:
        if trouble == "die":
            os._exit(9)
        if trouble == "hang":
            time.sleep(600)
        if trouble == "reset":  # closing with a zero linger sends RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return self.connection.close()
        self.send_response(int(trouble) if trouble.isdigit() else 200)
        self.end_headers()
        if trouble in ("cut", "malformed"):
            event = {"text": "x", "output_ids": [11], "meta_info": meta(self.info, prompt, 1, False)}
            self.write(json.dumps(event) if trouble == "cut" else '{"text": ')
        if trouble in ("done", "malformed"):
            self.write("[DONE]")

    def reply(self, content: dict[str, object]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def write(self, event: str) -> None:
        self.wfile.write(f"data: {event}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    info = settings(sys.argv[1:]) | {"nonce": os.environ["DDTREE_NONCE"], "pid": os.getpid()}
    if (message := strike(f"start.{info['served_model_name']}")) is not None:
        if message == "sleep":
            time.sleep(600)
        sys.exit(message)
    info |= json.loads(strike(f"info.{info['served_model_name']}") or "{}")
    Handler.info = info
    ThreadingHTTPServer(("127.0.0.1", int(str(info["port"]))), Handler).serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["-c"]:  # the session asks the engine's interpreter for package versions
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    main()
