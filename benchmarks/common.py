"""Shared by the benchmarks: where the model is, how prompts look, how alternatives are timed against each other."""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

from ddtree.engine.target import Target  # before torch itself, so that its threads are set up as the engine's are

ROOT = Path(__file__).resolve().parents[1]
DRAFTER = ROOT / "assets/smollm2-135m-dflash"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--target", type=Path, default=ROOT / "models/smollm2-135m/target", help="Hugging Face folder")
    made.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    return made


def load_target(args: argparse.Namespace, positions: int) -> Target:
    import torch

    torch.set_num_threads(args.threads)
    return Target(args.target, positions, torch.float32, torch.device("cpu"))


def some_tokens(n: int, vocab: int) -> list[int]:
    return random.Random(0).choices(range(3, vocab), k=n)


def held_out_prompts(target: Path, limit: int | None = None) -> list[list[int]]:
    """The 40 prompts that the drafter was never trained on, as token ids of a chat; `limit` of them are spread over the
    categories."""
    spec = importlib.util.spec_from_file_location("prompts", DRAFTER / "train/prompts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    chat = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{{}}<|im_end|>\n<|im_start|>assistant\n"
    texts = [text for texts in module.HELD_OUT.values() for text in texts]
    chosen = texts[:: max(1, len(texts) // limit)][:limit] if limit else texts
    return [tokenizer.encode(chat.format(text), add_special_tokens=False).ids for text in chosen]


def interleaved(alternatives: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each alternative. They take turns, so that a disturbance of the machine hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in alternatives}
    for round_ in range(rounds + 2):
        for name, run in alternatives.items():
            start = time.perf_counter()
            run()
            if round_ >= 2:  # the first two rounds warm up
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in taken.items()}
