"""`ddtree mock`: the mock server as a program, for testing any load client."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from ddtree.mock.lies import LIES
from ddtree.mock.script import Script
from ddtree.mock.server import Mock


def main(arguments: Sequence[str]) -> int:
    args = parser().parse_args(arguments)
    script = Script(args.tokens, args.per_step, args.first_s, args.step_s, 0.1 if args.lie == "drift" else 0.0)
    try:
        asyncio.run(_serve(Mock(script, args.lie), args.host, args.port))
    except OSError as error:
        print(f"ddtree mock: --port {args.port}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def parser() -> argparse.ArgumentParser:
    lies = "\n".join(f"  {name:18} {what}" for name, what in LIES.items())
    made = argparse.ArgumentParser(
        prog="ddtree mock",
        description="A server without a model: scripted streams whose truth is at GET /truth (DELETE forgets it).",
        epilog=f"lies:\n{lies}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=30000, help="0: a free one (default: 30000)")
    made.add_argument("--lie", choices=LIES, metavar="NAME", help="see below (default: the truth)")
    made.add_argument("--tokens", type=_count, default=64, help="length of every answer (default: 64)")
    made.add_argument("--per-step", type=_count, default=4, help="tokens of a chunk after the first (default: 4)")
    made.add_argument("--first-s", type=_seconds, default=0.05, help="seconds to the first token (default: 0.05)")
    made.add_argument("--step-s", type=_seconds, default=0.02, help="seconds between chunks (default: 0.02)")
    return made


async def _serve(mock: Mock, host: str, port: int) -> None:
    async with mock.serve(host, port):
        print(f"{mock.url}  lie: {mock.lie or 'none'}", flush=True)
        await asyncio.Event().wait()


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: must be seconds, 0 or more")
    return value
