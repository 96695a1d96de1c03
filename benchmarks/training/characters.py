"""A GPT of a million parameters that learns the characters of Graft's documentation, beside PyTorch's.

    python -m benchmarks.training.characters [--steps 300] [--threads 2]

Both begin with the same weights, see the same batches in the same order and take steps of Adam. ``apart`` is how far
the means of the losses since the line before are from each other, as a share of PyTorch's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
import torch

import graft
from benchmarks.training.__main__ import torch_loss, weights_of
from benchmarks.training.networks import gpt
from graft.training import Adam, Trainer

TEXTS = Path(__file__).parents[2] / "docs"
CHARACTERS = 128
"""Those of ASCII; any other is the last of them."""
RATE = 1e-3


def characters() -> np.ndarray:
    """Return the documentation as numbers."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(TEXTS.glob("*.md")))
    return np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), CHARACTERS - 1).astype(np.int64)


def batches(batch: int, length: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield pieces of the text, and for each character the one behind it."""
    text, rng = characters(), np.random.default_rng(seed)
    while True:
        places = rng.integers(0, len(text) - length, (batch, 1)) + np.arange(length)
        yield {"words": text[places], "target": text[places + 1]}


def losses(model: onnx.ModelProto, given: Sequence[Mapping[str, np.ndarray]], threads: int) -> tuple[np.ndarray, ...]:
    """Return the losses of all steps, Graft's and PyTorch's, and the seconds that each took."""
    weights = weights_of(model)
    trainer = Trainer(model, "cross-entropy", Adam(RATE), wrt=weights, threads=threads)
    torch.set_num_threads(threads)
    loss, module = torch_loss(graft.load(model), weights)
    optimizer = torch.optim.Adam(module.parameters(), RATE)

    def theirs(feeds: Mapping[str, np.ndarray]) -> float:
        optimizer.zero_grad(set_to_none=True)
        found = loss({name: torch.from_numpy(array) for name, array in feeds.items()})
        found.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(found.detach())

    found = []
    for step in (trainer.step, theirs):
        started = perf_counter()
        found.append(np.array([float(str(step(feeds))) for feeds in given]))
        found.append(np.array(perf_counter() - started))
    return found[0], found[2], found[1], found[3]


def main() -> None:
    """Print the losses on the way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    model = gpt(5, 128, 4, 64, CHARACTERS, batch=16)
    shapes = [one.dims for one in model.graph.initializer if one.name in weights_of(model)]
    drawn = batches(16, 64, seed=0)
    ours, theirs, *seconds = losses(model, [next(drawn) for _ in range(options.steps)], options.threads)
    print(f"{sum(int(np.prod(one)) for one in shapes):,} parameters, {len(characters()):,} characters")
    print("| step | Graft | PyTorch | apart |\n|---:|---:|---:|---:|")
    every = max(1, options.steps // 6)
    for first in range(0, options.steps, every):
        own, peer = (float(one[first : first + every].mean()) for one in (ours, theirs))
        print(f"| {min(first + every, options.steps)} | {own:.4f} | {peer:.4f} | {abs(own - peer) / peer:.1e} |")
    print(f"{seconds[0]:.1f} s and {seconds[1]:.1f} s")


if __name__ == "__main__":
    main()
