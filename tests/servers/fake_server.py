"""A server with the engine's surface and a chosen defect: `fake_server.py MODE -m ddtree.engine --port N ...`."""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = sys.argv[1]
WORKER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def settings(argv: list[str]) -> dict[str, object]:
    """--some-key value -> {"some_key": value}; numbers become numbers, flags without a value true."""
    found: dict[str, object] = {"shadow": False, "draft_window": None}
    for i, word in enumerate(argv):
        if word.startswith("--"):
            value = argv[i + 1] if i + 1 < len(argv) and not argv[i + 1].startswith("--") else "true"
            found[word[2:].replace("-", "_")] = json.loads(value) if value.isdigit() or value == "true" else value
    return found


def main() -> None:
    info = settings(sys.argv[2:]) | {"nonce": os.environ.get("DDTREE_NONCE"), "pid": os.getpid()}
    print(f"loading on port {info['port']}", flush=True)
    if MODE == "dies":
        raise RuntimeError("the checkpoint has no layer 7")
    if MODE == "bad_flag":
        print("usage: engine [-h]\nengine: error: unrecognized arguments: --budgget 7", file=sys.stderr)
        sys.exit(2)
    if MODE == "missing_model":
        Path("/nonexistent/config.json").read_text()
    if MODE == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "oom_lingers":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
        time.sleep(600)
    if MODE == "never_listens":
        time.sleep(600)
    if MODE == "ignores_sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "daemon_children":
        subprocess.Popen([sys.executable, "-c", WORKER], start_new_session=True)
        middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WORKER!r}], start_new_session=True)"
        subprocess.run([sys.executable, "-c", middle], check=True)
    if MODE == "stale":
        info["nonce"] = "of another start"
    if MODE == "ignores_window":
        info["draft_window"] = None

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/health_generate" and MODE == "never_generates":
                time.sleep(600)
            status = 503 if self.path == "/health_generate" and MODE == "generation_fails" else 200
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(info).encode() if self.path == "/server_info" else b"{}")

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", int(str(info["port"]))), Handler).serve_forever()


if __name__ == "__main__":
    main()
