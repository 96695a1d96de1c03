"""Programs whose values in the arena have poisoned gaps between them, which come out as results.

The description is rewritten, no runtime is built anew: every value has a place for itself, gaps are tensors that a copy
fills before the first call, and that a copy hands over behind the last one. Places begin at multiples of 64 bytes, so
a value of other sizes has up to 63 bytes behind it before its gap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import graft
from graft.compiler.api import program_of
from graft.runtime.extents import evaluate
from graft.runtime.procedure import Call, TensorSpec

GAP = 256
"""Bytes of a gap, a multiple of the arena's alignment."""
POISON = np.full(GAP, 0xFF, np.uint8)
"""Of floats a NaN, which spreads to the result where it is read."""
ALIGNMENT = 64


def with_gaps(program: graft.Program) -> graft.Program:
    """Return a program of static shapes, or of memory planned for the largest ones, with gaps in its entry's arena."""
    entry, *others = program.description.procedures
    tensors, place = [*entry.tensors], GAP
    gaps = [0]
    for number, tensor in enumerate(entry.tensors):
        if tensor.storage == "arena":
            count = np.prod([evaluate(one, {}) for one in tensor.shape or ()], dtype=int) if not tensor.room else 0
            size = tensor.room or int(count) * np.dtype(tensor.dtype).itemsize
            tensors[number] = replace(tensor, offset=place)
            gaps.append(place + -(-max(size, 1) // ALIGNMENT) * ALIGNMENT)
            place = gaps[-1] + GAP
    first = len(tensors)
    tensors.append(TensorSpec("poison", "uint8", (GAP,), "constant", constant="poison"))
    tensors += [TensorSpec(f"gap {at}", "uint8", (GAP,), "arena", offset=at) for at in gaps]
    results = range(len(tensors), len(tensors) + len(gaps))
    tensors += [
        TensorSpec(f"gap_{number}", "uint8", (GAP,), "output", index=len(entry.outputs) + number)
        for number in range(len(gaps))
    ]
    fill = [Call("copy", (first,), (first + 1 + number,)) for number in range(len(gaps))]
    hand_over = [Call("copy", (first + 1 + number,), (results[number],)) for number in range(len(gaps))]
    changed = replace(
        entry, tensors=tuple(tensors), outputs=(*entry.outputs, *results), arena_bytes=place, arena_bound=0,
        calls=(*fill, *entry.calls, *hand_over),
    )  # fmt: skip
    constants = {**program.description.constants, "poison": POISON}
    return program_of(replace(program.description, procedures=(changed, *others), constants=constants), 1)


def run_with_gaps(program: graft.Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the results of a program made by `with_gaps`; raise AssertionError where a gap has changed."""
    results = program.run(inputs)
    for name in [name for name in results if name.startswith("gap_")]:
        gap = results.pop(name)
        assert (gap == POISON).all(), f"byte {np.argmax(gap != POISON)} of {name} was written"
    return results
