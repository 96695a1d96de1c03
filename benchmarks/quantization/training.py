"""Training through quantisation: `python -m benchmarks.quantization.training`.

The digits are quantised with 200 images of the training set, then trained for two epochs of it, scales included, and
tried on the 360 held-out images before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import graft
from benchmarks import zoo
from examples.digits.data import accuracy, load_split
from graft.training import Adam, Trainer

CALIBRATION, EPOCHS, STEP = 200, 2, 16
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "int3-weights": {"base": "int3-weights"},
    "int2, activations of int8": {"base": "int3-weights", "weights": {"type": "int2"}, "activations": {"type": "int8"}},
    "int3, activations of int4": {
        "base": "int3-weights", "activations": {"type": "int4", "scale": "power-of-two", "calibration": "mse"},
    },
}  # fmt: skip
"""Recipes by the name of their row."""


def main() -> None:
    """Print the accuracy by each recipe, before and after."""
    train, held_out, classes, labels = load_split()
    print("| recipe | quantised | trained |\n|---|---:|---:|")
    for name, recipe in RECIPES.items():
        model = graft.quantize(zoo.path_of("digits"), recipe, {"image": train[:CALIBRATION]})
        trainer = Trainer(model, "cross-entropy", Adam(3e-4), accumulate=STEP)
        trainer.fit({"image": train, "target": classes}, epochs=EPOCHS, batch=1)
        before, after = (accuracy(graft.compile(one), held_out, labels) for one in (model, trainer.model))
        print(f"| {name} | {before:.4f} | {after:.4f} |", flush=True)


if __name__ == "__main__":
    main()
