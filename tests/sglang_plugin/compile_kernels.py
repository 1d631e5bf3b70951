"""Compiles every kernel for the compute capability given as argument; prints its name and whether registers spilled.

A process of its own: where Triton's interpreter is on, as in the tests, nothing can be compiled.
"""

from __future__ import annotations

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ddtree.sglang_plugin.tree import nodes, rows, vocabulary

I64, I32, F32, U8 = "*i64", "*i32", "*fp32", "*u8"
TREE = {"N": 64, "SLOTS": 64}
ROW = {"X": "*bf16", "stride": "i32", "vocab": "i32", "CHUNK": vocabulary.CHUNK}
KERNELS: list[tuple[Any, int, dict[str, str | int | bool]]] = [
    (
        nodes._build,
        1,
        {
            **dict.fromkeys(("TOKENS", "ROOTS", "TOKEN", "CHILD", "SIBLING"), I64),
            **{"LOG_PROBS": F32, "PARENT": I32, "DEPTH": I32, "L": 15, "K": 8, "N": 256, "SLOTS": 256},
        },
    ),
    (nodes._mask, 1, {"PARENT": I32, "SEQ_LENS": I64, "MASK": U8, "FULL": True, "REQUESTS": 8, **TREE}),
    (nodes._mask, 1, {"PARENT": I32, "SEQ_LENS": I32, "MASK": U8, "FULL": False, "REQUESTS": 1, **TREE}),
    (
        nodes._walk,
        1,
        {
            **dict.fromkeys(("TOKEN", "CHOICE", "NODES", "TOKENS", "BONUS"), I64),
            **dict.fromkeys(("PARENT", "DEPTH", "LENGTH"), I32),
            **TREE,
            **{"D": 16, "DEPTHS": 16},
        },
    ),
    (
        nodes._reached,
        1,
        {**dict.fromkeys(("TOKEN", "KNOWN"), I64), **dict.fromkeys(("PARENT", "DEPTH", "LENGTH", "REACHED"), I32)}
        | TREE
        | {"M": 16},
    ),
    (vocabulary._shortlist, 8, ROW | {"first_id": "i32", "VALUES": F32, "IDS": I64, "LSE": F32, "K": 8}),
    (vocabulary._sample, 8, ROW | {"TEMPERATURE": F32, "SEED": I64, "SCORES": F32, "IDS": I64}),
    (
        vocabulary._merge,
        4,
        {**dict.fromkeys(("VALUES", "LSE", "BEST", "BEST_LSE"), F32), "IDS": I64, "BEST_IDS": I64}
        | {"COUNT": 38, "K": 8, "PARTS": 64, "CANDIDATES": 512},
    ),
    (
        rows._move,
        4,
        {**dict.fromkeys(("POINTERS", "ROW_BYTES", "SLOTS", "NODES"), I64), "stride": "i32", "LENGTH": I32}
        | {"D": 16, "PLACES": 16, "WORDS": 128},
    ),
]


def main() -> None:
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    for kernel, warps, arguments in KERNELS:
        names = kernel.arg_names
        signature = {name: value if isinstance(value := arguments[name], str) else "constexpr" for name in names}
        constants = {(names.index(name),): value for name, value in arguments.items() if not isinstance(value, str)}
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        made = triton.compile(source, target=target, options={"num_warps": warps})
        print(kernel.__name__, "spills" if "ld.local" in made.asm["ptx"] else "fits")


if __name__ == "__main__":
    main()
