"""What equations of extents cost a call: programs with and without them, in turns, with the same and with other shapes.

    python -m benchmarks.extents.equations [ROUNDS]

Prints the least times of turns, which other work on the machine disturbs least, and their ratio. With the shapes of the
call before nothing is evaluated; with others every equation is, beside the extents and the plan of memory.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import perf_counter

import numpy as np
import onnx

import graft
from graft.compiler.api import program_of

TURN = 100
"""Calls of one turn."""
TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[n, k] x, float[n, m] z) => (float[n, 8] y) {
  c = MatMul (x, v) d = MatMul (z, w) s = Add (c, d) y = Softmax (s) }"""


def model() -> onnx.ModelProto:
    """Return two products by constants, whose rows both have to be columns of inputs."""
    made = onnx.parser.parse_model(TEXT)
    for name, rows in (("v", 64), ("w", 16)):
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((rows, 8), np.float32), name))
    return made


def without(program: graft.Program) -> graft.Program:
    """Return the program without its equations."""
    description = program.description
    procedures = tuple(replace(one, equations=(), reasons=()) for one in description.procedures)
    return program_of(replace(description, procedures=procedures), 1)


def seconds(program: graft.Program, turns: list[tuple[np.ndarray, ...]]) -> float:
    """Return the time of a call, of one turn."""
    started = perf_counter()
    for number in range(TURN):
        program(*turns[number % len(turns)])
    return (perf_counter() - started) / TURN


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    checked = graft.compile(model(), ["llvm"], threads=1)
    plain = without(checked)
    count = len(checked.description.procedures[0].equations)
    for label, sizes in (("the same shapes", [96]), ("other shapes each time", [96, 95])):
        turns = [(np.ones((rows, 64), np.float32), np.ones((rows, 16), np.float32)) for rows in sizes]
        pairs = []
        for number in range(rounds):
            order = (checked, plain) if number % 2 else (plain, checked)
            times = {id(program): seconds(program, turns) for program in order}
            pairs.append((times[id(checked)], times[id(plain)]))
        both = [1e6 * min(column) for column in zip(*pairs, strict=True)]
        ratio = both[0] / both[1]
        print(f"{label}: {both[0]:.2f} us with {count} equations, {both[1]:.2f} us without, ratio {ratio:.4f}")


if __name__ == "__main__":
    main()
