"""The HTTP server of an engine: one process, one model, one worker thread."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version

from aiohttp import web

from ddtree.engine import native, openai
from ddtree.engine.protocol import BadRequest
from ddtree.engine.serving import SERVING, Serving
from ddtree.engine.worker import Engine, Worker
from ddtree.models import Tokenizer

BODY_BYTES = 256 * 2**20  # a prompt of some million token ids
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def listen(host: str, port: int) -> socket.socket:
    """Take the port before the model is loaded; OSError, one line, if somebody has it."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        raise OSError(f"port {port} on {host}: {error.strerror}") from None
    return sock


async def serve(
    build: Callable[[], Engine], tokenizer: Tokenizer, sock: socket.socket, name: str, started_unix: float
) -> None:
    """Load the engine by `build`, whose errors are raised, and answer requests until SIGTERM or SIGINT."""
    host, port = sock.getsockname()[:2]
    worker = Worker(build)
    info = {
        **await worker.start(),
        "host": host,
        "port": port,
        "served_model_name": name,
        "engine": "embedded",
        "version": version("ddtree-bench"),
        "nonce": os.environ.get("DDTREE_NONCE"),
        "pid": os.getpid(),
        "started_unix": started_unix,
    }
    app = web.Application(middlewares=[_errors], client_max_size=BODY_BYTES)
    app[SERVING] = Serving(worker, tokenizer, info)
    app.add_routes(native.routes)
    app.add_routes(openai.routes)
    # A handler is cancelled when its client goes away; that ends the request in the engine.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.SockSite(runner, sock).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _end, number)
    print(f"ready after {time.time() - started_unix:.1f} s on http://{host}:{port}", flush=True)
    await asyncio.Event().wait()


def _end(number: int) -> None:
    """At once: the engine's thread may be in the middle of a long forward pass, and nothing is worth saving."""
    print(f"ended by {signal.Signals(number).name}", flush=True)
    sys.stderr.flush()
    os._exit(0)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error is JSON with one sentence, in OpenAI's shape."""
    try:
        return await handler(request)
    except BadRequest as error:
        return _error(400, str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _error(error.status, f"{request.method} {request.path}: {error.reason}")


def _error(status: int, message: str) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)
