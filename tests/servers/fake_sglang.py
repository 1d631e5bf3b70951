"""Stands in for `python` with SGLang 0.5.16 installed: `fake_sglang.py MODE -m sglang.launch_server --port N ...`.

It logs and answers as that release does, and like it works in a process of its own, the scheduler.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FLAGS = Path(__file__).parents[2] / "src" / "ddtree" / "servers" / "data" / "sglang-0.5.16.json"
MODE, ARGUMENTS = (sys.argv[1], sys.argv[2:]) if __name__ == "__main__" else ("", [])
TRACEBACK = (
    'Scheduler hit an exception: Traceback (most recent call last):\n  File "model_runner.py", line 1, in load\n'
)
SCHEDULER_ERRORS = {
    "oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "no_room": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "nccl": "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:77, unhandled cuda error",
    "few_gpus": "RuntimeError: CUDA error: invalid device ordinal",
    "lost_rank": "torch.distributed.DistStoreError: Timed out after 601 s waiting for clients. 3/4 clients joined.",
    "no_weights": "FileNotFoundError: [Errno 2] No such file or directory: '/models/target/config.json'",
    "no_package": "ModuleNotFoundError: No module named 'sgl_kernel'",
    "bad_value": "ValueError: --speculative-draft-window-size must be >= --speculative-num-draft-tokens (block_size).",
}


def settings() -> dict[str, object]:
    found: dict[str, object] = {"speculative_algorithm": None, "speculative_draft_window_size": None}
    for i, word in enumerate(ARGUMENTS):
        if word.startswith("--"):
            value = ARGUMENTS[i + 1] if i + 1 < len(ARGUMENTS) and not ARGUMENTS[i + 1].startswith("--") else "true"
            found[word[2:].replace("-", "_")] = json.loads(value) if value.isdigit() or value == "true" else value
    return found


def scheduler() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE in SCHEDULER_ERRORS:
        print(f"[2026-11-30 22:00:00] {TRACEBACK}{SCHEDULER_ERRORS[MODE]}", flush=True)
        os.kill(os.getppid(), signal.SIGQUIT)
    time.sleep(600)


def server_info(args: dict[str, object]) -> dict[str, object]:
    scheduler_view = {key: value for key, value in args.items() if key != "port"} | {
        "memory_usage": {"token_capacity": 4096 if MODE == "small_cache" else args.get("max_total_tokens", 99999)},
        "effective_max_running_requests_per_dp": args["max_running_requests"],
    }
    if MODE == "other_backend":
        scheduler_view["attention_backend"] = "triton"
    if MODE == "smaller_world":
        scheduler_view["tp_size"] = 1
    if args["speculative_algorithm"] == "DFLASH":
        args |= {"speculative_num_steps": 1, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 16}
    decode = {"backend": "full", "max_bs": args.get("cuda_graph_max_bs_decode", 256)}
    return args | {
        "version": "0.5.15" if MODE == "other_release" else "0.5.16",
        "cuda_graph_config": {"decode": decode, "prefill": {"backend": "disabled"}},
        "max_total_num_tokens": 99999,
        "internal_states": [scheduler_view],
    }


def main() -> None:
    if ARGUMENTS[0] == "-c":
        print("0.5.16")
        return
    if "--help" in ARGUMENTS:
        flags = set(json.loads(FLAGS.read_text())["flags"]) - ({"--random-seed"} if MODE == "older_flags" else set())
        print("usage: launch_server.py [-h]", *(f"[{flag} X]" for flag in sorted(flags)))
        return
    if ARGUMENTS[0] == "scheduler":
        scheduler()
    args = settings()
    print("Ignore import error when loading sglang.srt.models.inkling: No module named 'helion'", flush=True)

    def child_failed(*_: object) -> None:
        print(
            "[2026-11-30 22:00:01] Received sigquit from a child process. It usually means the child failed.",
            flush=True,
        )

    signal.signal(signal.SIGQUIT, child_failed)
    subprocess.Popen([sys.executable, __file__, MODE, "scheduler"], start_new_session=True)
    if MODE in SCHEDULER_ERRORS:
        time.sleep(600)
    if args["speculative_algorithm"] == "DFLASH":
        window = None if MODE == "drops_window" else args["speculative_draft_window_size"]
        print(
            "[2026-11-30 22:00:01] Initialized DFLASH draft runner. attention_backend=fa3, model=DFlashDraftModel, "
            f"block_size=16, draft_window_size={window}, compact_cache={window is not None}",
            flush=True,
        )
    if MODE == "stale":
        args["served_model_name"] = "of another start"
    info = server_info(args)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            models = {"data": [{"id": args["served_model_name"], "object": "model"}]}
            bodies = {"/server_info": info, "/v1/models": models, "/health": None, "/health_generate": None}
            self.send_response(200 if self.path in bodies else 404)
            self.end_headers()
            if body := bodies.get(self.path):
                self.wfile.write(json.dumps(body).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            tokens = 0 if MODE == "no_tokens" else body["sampling_params"]["max_new_tokens"]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"text": "", "meta_info": {"completion_tokens": tokens}}).encode())

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", int(str(args["port"]))), Handler).serve_forever()


def fake_sglang(folder: Path, mode: str) -> Path:
    path = folder / f"python-sglang-{mode}"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {mode} "$@"\n')
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    main()
