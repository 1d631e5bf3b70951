"""python -m ddtree.engine.train FOLDER: make and train the tiny hybrid target."""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from ddtree.engine.train import text
from ddtree.engine.train.hybrid import CONFIG, Weights, forward, initial

BATCH, LENGTH, RATE, DECAY = 8, 96, 4e-3, 0.01


def train(weights: Weights, ids: torch.Tensor, steps: int, generator: torch.Generator) -> float:
    """Next-token training in place, on random pieces of `ids` [n]; returns the mean loss of the last tenth."""
    for weight in weights.values():
        weight.requires_grad_()
    optimiser = torch.optim.AdamW(weights.values(), RATE, betas=(0.9, 0.95), weight_decay=DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / 50) * (0.02 + 0.98 * math.cos(math.pi / 2 * step / steps) ** 2)
    )
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(ids) - LENGTH, (BATCH,), generator=generator)
        pieces = ids[starts[:, None] + torch.arange(LENGTH + 1)]
        logits, _ = forward(weights, CONFIG, pieces[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    last = losses[-max(1, steps // 10) :]
    return sum(last) / len(last)


def write(folder: Path, weights: Weights) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    tensors = {name: weight.detach().contiguous() for name, weight in weights.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ddtree.engine.train", description="Train the tiny hybrid target.")
    parser.add_argument("folder", type=Path, help="where the checkpoint goes, e.g. models/tiny-hybrid/target")
    parser.add_argument("--steps", type=int, default=300, help="steps of training (default 300: about a minute)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began, generator = time.monotonic(), torch.Generator().manual_seed(args.seed)
    source = text.corpus()
    tokenizer = text.make_tokenizer(source, CONFIG["vocab_size"])
    ids = torch.tensor(tokenizer.encode(source, add_special_tokens=False).ids)
    weights = initial(CONFIG, generator)
    loss = train(weights, ids, args.steps, generator)
    write(args.folder, weights)
    text.write_tokenizer(tokenizer, args.folder, CONFIG["max_position_embeddings"])
    print(f"{args.folder}: {len(ids)} tokens, loss {loss:.2f} nats after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
