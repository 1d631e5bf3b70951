"""python -m ddtree.engine.train FOLDER: make and train the tiny hybrid target and its drafter."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from ddtree.engine.train import drafter, hybrid, text
from ddtree.engine.train.hybrid import Weights

BATCH, LENGTH, RATE, DECAY = 8, 96, 4e-3, 0.01
SEQUENCES, WRITTEN = 32, 48  # of the target, which the drafter learns from


def train(weights: Weights, loss_of_batch: Callable[[], torch.Tensor], steps: int) -> float:
    """Training in place; returns the mean loss of the last tenth."""
    for weight in weights.values():
        weight.requires_grad_()
    optimiser = torch.optim.AdamW(weights.values(), RATE, betas=(0.9, 0.95), weight_decay=DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / 50) * (0.02 + 0.98 * math.cos(math.pi / 2 * step / steps) ** 2)
    )
    losses = []
    for _ in range(steps):
        loss = loss_of_batch()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    for weight in weights.values():
        weight.requires_grad_(False)
    last = losses[-max(1, steps // 10) :]
    return sum(last) / len(last)


def train_target(weights: Weights, ids: torch.Tensor, steps: int, generator: torch.Generator) -> float:
    """Next-token prediction on random pieces of `ids` [n]."""

    def loss() -> torch.Tensor:
        starts = torch.randint(len(ids) - LENGTH, (BATCH,), generator=generator)
        pieces = ids[starts[:, None] + torch.arange(LENGTH + 1)]
        logits, _ = hybrid.forward(weights, hybrid.CONFIG, pieces[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())

    return train(weights, loss, steps)


def train_drafter(
    weights: Weights,
    target: Weights,
    ids: torch.Tensor,
    steps: int,
    generator: torch.Generator,
    sequences: int = SEQUENCES,
    written: int = WRITTEN,
) -> float:
    """Prediction of the target's own continuations of `ids` [n]."""
    known, features = drafter.continuations(target, ids, sequences, written, generator)

    def loss() -> torch.Tensor:
        rows = torch.randint(len(known), (BATCH,), generator=generator)
        return drafter.losses(weights, target["model.embed_tokens.weight"], known[rows], features[rows], generator)

    return train(weights, loss, steps)


def write(folder: Path, config: dict[str, Any], weights: Weights) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = {name: weight.detach().contiguous() for name, weight in weights.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m ddtree.engine.train", description="Train a tiny hybrid target and its DFlash drafter."
    )
    parser.add_argument("folder", type=Path, help="gets target/ and drafter/, e.g. models/tiny-hybrid")
    parser.add_argument("--steps", type=int, default=300, help="steps of training of each (default 300)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began, generator = time.monotonic(), torch.Generator().manual_seed(args.seed)
    source = text.corpus()
    tokenizer = text.make_tokenizer(source, hybrid.CONFIG["vocab_size"])
    ids = torch.tensor(tokenizer.encode(source, add_special_tokens=False).ids)
    target, draft = hybrid.initial(hybrid.CONFIG, generator), drafter.initial(generator)
    loss = train_target(target, ids, args.steps, generator)
    drafting = train_drafter(draft, target, ids, args.steps, generator)
    write(args.folder / "target", hybrid.CONFIG, target)
    text.write_tokenizer(tokenizer, args.folder / "target", hybrid.CONFIG["max_position_embeddings"])
    write(args.folder / "drafter", drafter.CONFIG, draft)
    seconds = time.monotonic() - began
    print(f"{args.folder}: loss {loss:.2f} nats, of the drafter {drafting:.2f}, after {seconds:.0f} s")


if __name__ == "__main__":
    main()
