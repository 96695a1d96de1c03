"""A step that trains digits on an emulated Cortex-M4: forward, backward and update as a bare-metal C project.

    python -m benchmarks.cortex_m.training

One image a step, SGD with momentum in 32-bit floats: of all weights, of all with recomputation, of the last two layers
and of the last. The board compares loss, weights and states behind the step with those of this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import graft
from benchmarks.cortex_m.tiny import Measured, missing, run_on_board
from examples.digits.data import load_split
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.rows import THUMBV7EM
from graft.plugins.c_source.backend import CBackend
from graft.runtime.export.c_check import Recorded
from graft.training import SGD, Trainer

MODEL = "examples/digits/digits.onnx"
PARTS: Mapping[str, Mapping[str, Any]] = {
    "all weights": {},
    'all, recompute="sqrt"': {"recompute": "sqrt"},
    "last two layers": {"wrt": ["10.*", "12.*"]},
    "last layer": {"wrt": ["12.*"]},
}


def measured(folder: Path, **settings: Any) -> tuple[Measured, int]:
    """Run a step on the board; return what it took, and the bytes of weights that change and of their states."""
    trainer = Trainer(MODEL, "cross-entropy", SGD(0.01, momentum=0.9), threads=1, **settings)
    request = Request([CBackend(compiles=False)], threads=1, target=THUMBV7EM.name)
    description = compile_model(trainer.step_model, request).description
    images, _, labels, _ = load_split()
    given = {"image": images[:1], "target": labels[:1], **trainer.arrays, "learning_rate": np.float32(0.01)}
    given["step"] = np.int64(1)
    feeds = [np.asarray(given[value.name or ""]) for value in trainer.step_model.graph.inputs if value.name in given]
    wanted = graft.compile(trainer.step_model, ["llvm"], threads=1)
    found = wanted.run({one.name: array for one, array in zip(wanted.inputs, feeds, strict=True)})
    recorded = Recorded(feeds, [np.asarray(found[one.name]) for one in wanted.outputs])
    changing = sum(array.nbytes for array in trainer.arrays.values())
    return run_on_board(description, recorded, "digits_step", folder), changing


def main() -> None:
    """Print a row for each part that is trained."""
    if reason := missing():
        sys.exit(reason)
    print(
        "| trained | instructions | arena | stack | weights that change, and states | fixed weights | kernels | check |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    for name, settings in PARTS.items():
        with TemporaryDirectory() as folder:
            one, changing = measured(Path(folder), **settings)
        print(
            f"| {name} | {one.instructions:,} | {one.arena:,} | {one.stack:,} | {changing:,} | {one.weights:,} | "
            f"{one.kernels:,} | {'passed' if one.passed else 'FAILED'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
