"""What each switch of a recipe gains on ten networks: `python -m benchmarks.quantization.switches RECIPE ...`.

Printed is the signal-to-noise ratio of the output in dB, of inputs that calibration has not seen, run as by `tools`.
``--networks=NAME,...`` takes these networks alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

import graft
from benchmarks.quantization.tools import names_given, outputs, tasks

PLAIN: Mapping[str, Mapping[str, Any]] = {
    "int8": {"base": "int8", "correct_bias": False},
    "int8-channel": {"base": "int8-channel", "correct_bias": False},
    "int4": {"base": "int4-weights", "correct_bias": False, "weights": {"rounding": "nearest"}},
    "float8": {"base": "float8", "correct_bias": False},
}
"""Recipes without any switch."""
GPTQ = {"weights": {"rounding": "gptq"}}
SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "correct": {"correct_bias": True},
    "equalize": {"equalize": True},
    "smooth": {"smooth": 0.5},
    "awq": {"awq": True},
    "gptq": GPTQ,
    "eq+corr": {"equalize": True, "correct_bias": True},
    "gptq+corr": {**GPTQ, "correct_bias": True},
    "all three": {**GPTQ, "equalize": True, "correct_bias": True},
}  # fmt: skip
"""Switches by the heading of their column."""


def main() -> None:
    """Print a row for each recipe and network."""
    recipes = sys.argv[1:]
    networks = names_given(recipes)
    recipes = recipes or list(PLAIN)
    if wrong := set(recipes) - set(PLAIN):
        sys.exit(f"no recipe of this table is called {', '.join(sorted(wrong))}; there are {', '.join(PLAIN)}")
    print(f"{'recipe':14} {'network':18}" + "".join(f" {name:>9}" for name in SWITCHES))
    for task in tasks(networks):
        exact = outputs(ir.to_proto(task.model).SerializeToString(), task.held_out)
        for recipe in recipes:
            print(f"{recipe:14} {task.name:18}", end="")
            for switch in SWITCHES.values():
                model = graft.quantize(task.model, {**PLAIN[recipe], **switch}, task.calibration)
                found = outputs(ir.to_proto(model).SerializeToString(), task.held_out)
                noise = np.sum((found - exact) ** 2, dtype=np.float64)
                print(f" {10 * np.log10(np.sum(exact**2, dtype=np.float64) / noise):9.1f}", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
