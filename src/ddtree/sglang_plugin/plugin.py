"""The entry point: runs in every SGLang process, whatever the algorithm, so it is cheap and imports nothing of CUDA."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from ddtree.sglang_plugin.compat import RELEASES
from ddtree.sglang_plugin.config import NAME


def register() -> None:
    """Make `--speculative-algorithm DDTREE` known. A release that the plugin was not built for refuses it in a line."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    release = metadata.version("sglang")
    if release not in RELEASES:
        SpeculativeAlgorithm.register(NAME, supports_overlap=True, validate_server_args=_refuse)(_no_worker)
        return
    from ddtree.sglang_plugin.algo import DDTreeAlgorithm, worker_class

    SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=DDTreeAlgorithm)(worker_class)


def _refuse(server_args: Any) -> None:
    raise ValueError(f"{NAME}: sglang {metadata.version('sglang')} is not supported; allowed: {', '.join(RELEASES)}")


def _no_worker(server_args: Any) -> type:
    raise AssertionError("refused before a worker is asked for")
