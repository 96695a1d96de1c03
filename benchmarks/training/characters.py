"""A GPT of a million parameters that learns the characters of Graft's documentation, beside PyTorch's.

    python -m benchmarks.training.characters [--steps 300]

Both begin with the same weights, see the same batches in the same order and take steps of Adam. ``apart`` is how far
the means of the losses since the line before are from each other, as a share of PyTorch's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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


def batches(batch: int, length: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield pieces of the documentation as numbers, and for each character the one behind it."""
    whole = "".join(path.read_text(encoding="utf-8") for path in sorted(TEXTS.glob("*.md")))
    text = np.minimum(np.frombuffer(whole.encode("utf-32-le"), np.uint32), CHARACTERS - 1).astype(np.int64)
    rng = np.random.default_rng(seed)
    while True:
        places = rng.integers(0, len(text) - length, (batch, 1)) + np.arange(length)
        yield {"words": text[places], "target": text[places + 1]}


def losses(model: onnx.ModelProto, given: Sequence[Mapping[str, np.ndarray]], threads: int) -> list[np.ndarray]:
    """Return the losses of all steps, Graft's and PyTorch's."""
    weights = weights_of(model)
    trainer = Trainer(model, "cross-entropy", Adam(1e-3), wrt=weights, threads=threads)
    torch.set_num_threads(threads)
    loss, module = torch_loss(graft.load(model), weights)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)

    def theirs(feeds: Mapping[str, np.ndarray]) -> float:
        optimizer.zero_grad(set_to_none=True)
        found = loss({name: torch.from_numpy(array) for name, array in feeds.items()})
        found.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(found.detach())

    return [np.array([float(str(step(feeds))) for feeds in given]) for step in (trainer.step, theirs)]


def main() -> None:
    """Print the losses on the way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    drawn = batches(16, 64, seed=0)
    model, given = gpt(5, 128, 4, 64, CHARACTERS, batch=16), [next(drawn) for _ in range(options.steps)]
    ours, theirs = losses(model, given, threads=2)
    every = max(1, options.steps // 6)
    for first in range(0, options.steps, every):
        own, peer = (float(one[first : first + every].mean()) for one in (ours, theirs))
        print(f"step {first + every}: Graft {own:.4f}, PyTorch {peer:.4f}, apart {abs(own - peer) / peer:.1e}")


if __name__ == "__main__":
    main()
