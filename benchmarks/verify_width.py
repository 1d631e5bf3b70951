"""Price of verifying n tokens in one pass, in decode steps: verify(n) / decode(1), and of drafting one block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from common import DRAFTER, interleaved, load_target, parser, some_tokens

from ddtree.engine.drafter import Drafter
from ddtree.engine.target import Span
from ddtree.tree import chain


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--context", type=int, nargs="+", default=[60, 1024])
    arguments.add_argument("--widths", type=int, nargs="+", default=[8, 16, 32, 64])
    arguments.add_argument("--rounds", type=int, default=15)
    args = arguments.parse_args()
    positions = max(args.context) + max(args.widths)
    target = load_target(args, positions)
    drafter = Drafter(DRAFTER, target, None, positions)
    for n in args.context:
        ids = some_tokens(n, target.config.vocab)
        cache, context = target.new_cache(n + max(args.widths)), drafter.new_context(n)
        _, features = target.forward([Span(cache, chain(ids[0], ids[1:]), n - 1)], drafter.taps)
        assert features is not None
        cache.commit(list(range(n)))
        drafter.extend([context], [features])
        steps: dict[str, Callable[[], object]] = {
            f"verify({width})": partial(target.forward, [Span(cache, chain(5, range(6, 5 + width)), 0)], drafter.taps)
            for width in [1, *args.widths]
        }
        steps["draft, chain"] = partial(drafter.draft, [context], [5], drafter.block - 1, 1)
        steps["draft, top 8"] = partial(drafter.draft, [context], [5], drafter.block - 1, 8)
        seconds = interleaved(steps, args.rounds)
        decode = seconds.pop("verify(1)")
        ratios = ", ".join(f"{name} {value / decode:.2f}" for name, value in seconds.items())
        print(f"context {n}: decode(1) {decode * 1e3:.1f} ms; in decode steps: {ratios}")


if __name__ == "__main__":
    main()
