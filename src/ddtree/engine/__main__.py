"""python -m ddtree.engine: serve one model with one method of decoding."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import NoReturn, get_args

from ddtree.engine.api import Settings
from ddtree.engine.worker import Engine as Served
from ddtree.plan.schema import METHOD_KEYS, Method


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _fail(message)


def main() -> None:
    started = time.time()
    arguments = _arguments()
    given = vars(arguments)
    for key, methods in METHOD_KEYS.items():
        if given[key] and arguments.method not in methods:
            flag = "--" + key.replace("_", "-")
            _fail(f"argument {flag}: belongs to method {' or '.join(sorted(methods))}, not {arguments.method}")
    for key in ("target", "drafter"):
        if given[key] is not None and not given[key].is_dir():
            _fail(f"argument --{key}: {given[key]} does not exist or is no folder")
    settings = Settings(**{name: given[name] for name in Settings.__dataclass_fields__})
    try:
        _serve(settings, arguments, started)
    except (ValueError, OSError) as error:
        _fail(" ".join(str(error).split()))


def _serve(settings: Settings, arguments: argparse.Namespace, started: float) -> None:
    from ddtree.engine.server import listen, serve
    from ddtree.models import Tokenizer

    sock = listen(arguments.host, arguments.port)
    tokenizer = Tokenizer(settings.target)

    def build() -> Served:
        from ddtree.engine.engine import Engine

        return Engine(settings)

    name = arguments.served_model_name or settings.target.name
    asyncio.run(serve(build, tokenizer, sock, name, started))


def _arguments() -> argparse.Namespace:
    parser = _Parser(prog="python -m ddtree.engine", description=__doc__, allow_abbrev=False)
    parser.add_argument("--port", type=_at_least(0), required=True, help="0: any free port, printed when ready")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--target", type=_folder, required=True, help="checkpoint folder of the served model")
    parser.add_argument("--drafter", type=_folder, help="checkpoint folder of its DFlash drafter")
    parser.add_argument("--method", choices=get_args(Method), required=True)
    parser.add_argument("--draft-tokens", type=_at_least(1), help="drafts per step; dflash: at most block size - 1")
    parser.add_argument("--ngram-max", type=_at_least(1), help="prompt lookup: longest n-gram that is looked up")
    parser.add_argument("--budget", type=_at_least(1), help="DDTree: nodes besides the root")
    parser.add_argument("--topk", type=_at_least(1), help="DDTree: candidates per depth")
    parser.add_argument("--draft-window", type=_at_least(1), help="context tokens that the drafter sees (all)")
    parser.add_argument("--shadow", action="store_true", help="DDTree: build and score the tree, verify the chain")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=_at_least(1), help="CPU threads (all that the process may use)")
    parser.add_argument("--max-running-requests", type=_at_least(1), default=8)
    parser.add_argument("--context-length", type=_at_least(1), default=4096)
    parser.add_argument("--served-model-name", help="name that clients see (the target folder's)")
    parser.add_argument("--seed", type=int, default=0, help="of sampling at temperatures above 0")
    return parser.parse_args()


def _at_least(least: int) -> type[int]:
    def whole(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {number}")
        return number

    whole.__name__ = "whole number"
    return whole  # type: ignore[return-value]


def _folder(text: str) -> Path:
    return Path(text).resolve()


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
