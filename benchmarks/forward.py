"""Decode step of the lean forward relative to that of Hugging Face Transformers (needs `pip install transformers`)."""

from __future__ import annotations

import sys
from collections.abc import Callable

from common import interleaved, load_target, parser, some_tokens

from ddtree.engine.target import KVCache, Span
from ddtree.tree import chain


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--context", type=int, nargs="+", default=[60, 1024])
    arguments.add_argument("--rounds", type=int, default=15)
    args = arguments.parse_args()
    try:
        import torch
        from transformers import AutoModelForCausalLM, DynamicCache
    except ImportError:
        print("forward.py: transformers is not installed", file=sys.stderr)
        return 2
    lean = load_target(args, max(args.context) + 1)
    theirs = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.float32).eval()
    for n in args.context:
        ids = some_tokens(n, lean.config.vocab)
        cache = lean.new_cache(n + 1)
        lean.forward([Span(cache, chain(ids[0], ids[1:]), n - 1)])
        cache.commit(list(range(n)))
        past = DynamicCache()
        with torch.inference_mode():
            theirs(torch.tensor([ids]), past_key_values=past, logits_to_keep=1)

        def ours_step(cache: KVCache = cache) -> torch.Tensor:
            return lean.forward([Span(cache, chain(5, ()), 0)])[0][0]

        def their_step(past: DynamicCache = past) -> torch.Tensor:
            with torch.inference_mode():
                logits = theirs(torch.tensor([[5]]), past_key_values=past).logits[0, 0]
            past.crop(-1)
            return logits

        difference = (ours_step() - their_step()).abs().max().item()
        steps: dict[str, Callable[[], object]] = {"lean": ours_step, "transformers": their_step}
        seconds = interleaved(steps, args.rounds)
        print(
            f"context {n}: lean {seconds['lean'] * 1e3:.1f} ms, transformers {seconds['transformers'] * 1e3:.1f} ms, "
            f"ratio {seconds['lean'] / seconds['transformers']:.2f}, largest logit difference {difference:.1e}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
