"""What the plugin runs with: SGLang's flags and a few variables, read and checked. Needs neither torch nor SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

NAME = "DDTREE"
MAX_ROWS = 256
MAX_TOPK = 32
BACKENDS = ("fa3", "triton")  # that verify trees and were studied
BUDGET, TOPK, SHADOW = "SGLANG_DDTREE_BUDGET", "SGLANG_DDTREE_TOPK", "SGLANG_DDTREE_SHADOW"


@dataclass(frozen=True, slots=True)
class Config:
    """One server's settings. `rows` tokens per request are verified in a step, root included."""

    budget: int  # nodes of the tree, root excluded
    topk: int  # candidates per depth
    block_size: int  # the drafter's block: the known token and block_size - 1 drafts
    rows: int
    draft_window: int | None  # the drafter sees this many context tokens (None: all)
    shadow: bool  # the tree is built and scored, the chain is verified

    @property
    def depth(self) -> int:
        """Drafted positions L."""
        return self.block_size - 1

    def line(self) -> str:
        """The settings as `key=value`, for the log."""
        return ", ".join(f"{key}={value}" for key, value in asdict(self).items())


def read(server_args: Any, environment: Mapping[str, str], block_size: int) -> Config:
    """The configuration of resolved or half-resolved ServerArgs. Raises ValueError with one line for the user.

    `--speculative-num-draft-tokens` is the number of rows and `--speculative-eagle-topk` K, as SGLang sizes its graphs
    and chooses its kernels by these two. The variables allow for what they cannot say: a budget below rows - 1, K = 1.
    """
    rows, topk = server_args.speculative_num_draft_tokens, server_args.speculative_eagle_topk
    if rows is None:
        raise _bad("--speculative-num-draft-tokens is missing; give budget + 1")
    if not 2 <= block_size <= rows <= MAX_ROWS:
        raise _bad(f"--speculative-num-draft-tokens is {rows}; allowed: {block_size} (drafter's block) to {MAX_ROWS}")
    if topk is None or not 2 <= topk <= MAX_TOPK:
        raise _bad(f"--speculative-eagle-topk is {topk}; allowed: 2 to {MAX_TOPK} (for K = 1 set {TOPK}=1 as well)")
    shadow = _switch(environment, SHADOW)
    if shadow and rows != block_size:
        raise _bad(f"{SHADOW}=1 verifies the chain: --speculative-num-draft-tokens is {rows}, must be {block_size}")
    budget = _number(environment, BUDGET, rows - 1, MAX_ROWS - 1 if shadow else rows - 1)
    window = server_args.speculative_draft_window_size
    if window is not None and window < block_size:
        raise _bad(f"--speculative-draft-window-size is {window}; allowed: {block_size} (drafter's block) or more")
    return Config(budget, _number(environment, TOPK, topk, MAX_TOPK), block_size, rows, window, shadow)


def check(server_args: Any, backends: tuple[str | None, ...]) -> None:
    """Refuse what the plugin cannot serve. `backends` are the attention back-ends of prefill and decode."""
    if not str(server_args.device).startswith("cuda"):
        raise _bad(f"--device is {server_args.device}; allowed: cuda")
    if server_args.speculative_draft_model_path is None:
        raise _bad("--speculative-draft-model-path is missing; give a DFlash drafter")
    if server_args.pp_size != 1:
        raise _bad(f"--pp-size is {server_args.pp_size}; allowed: 1")
    if server_args.enable_dp_attention:
        raise _bad("--enable-dp-attention is not supported")
    if server_args.page_size not in (None, 1):
        raise _bad(f"--page-size is {server_args.page_size}; allowed: 1")
    for backend in backends:
        if backend not in BACKENDS:
            # With top-k above 1 SGLang's own choice is not FA3, so the flag has to be given.
            raise _bad(f"--attention-backend is {backend}; allowed: {', '.join(BACKENDS)}")


def _number(environment: Mapping[str, str], key: str, default: int, most: int) -> int:
    text = environment.get(key, "").strip()
    if not text:
        return default
    if not text.isdigit() or not 1 <= int(text) <= most:
        raise _bad(f"{key}={text}; allowed: 1 to {most}")
    return int(text)


def _switch(environment: Mapping[str, str], key: str) -> bool:
    text = environment.get(key, "").strip()
    if text not in ("", "0", "1"):
        raise _bad(f"{key}={text}; allowed: 0, 1")
    return text == "1"


def _bad(problem: str) -> ValueError:
    return ValueError(f"{NAME}: {problem}")
