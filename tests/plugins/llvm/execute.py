"""A stand-in for the executor: the calls of a compiled region, one after another, on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graft.plugins.backend import CompiledRegion
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.extents import Extent, Symbol, evaluate


def execute(
    compiled: CompiledRegion, inputs: Sequence[np.ndarray], load_image: Any, values: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """Return the outputs of a compiled region; ``load_image`` makes a native module callable.

    Symbols get their values where they stand alone in the shape of an input, and from ``values``.
    """
    known = dict(values or {})
    for tensor in compiled.procedure.tensors:
        if tensor.storage == "input":
            for extent, size in zip(tensor.shape or (), inputs[tensor.index].shape, strict=True):
                if isinstance(extent, Symbol):
                    known[extent.name] = size

    def numbers(shape: Sequence[Extent] | None) -> tuple[int, ...]:
        return tuple(evaluate(extent, known) for extent in shape or ())

    images = [load_image(module.data) for module in compiled.modules]
    arrays: list[np.ndarray] = []
    for tensor in compiled.procedure.tensors:
        match tensor.storage:
            case "input":
                arrays.append(np.ascontiguousarray(inputs[tensor.index]).reshape(numbers(tensor.shape)))
            case "constant":
                constant = compiled.constants[tensor.constant]
                arrays.append(np.ascontiguousarray(constant).reshape(numbers(tensor.shape)))
            case "view":
                owner = arrays[tensor.of].reshape(-1)[tensor.offset // arrays[tensor.of].itemsize :]
                arrays.append(owner[: math.prod(numbers(tensor.shape))].reshape(numbers(tensor.shape)))
            case _:
                arrays.append(np.full(numbers(tensor.shape), 77, numpy_dtype(tensor.dtype)))
    for call in compiled.procedure.calls:
        if call.kind == "copy":
            np.copyto(arrays[call.outputs[0]], arrays[call.inputs[0]])
            continue
        given = [arrays[index] for index in call.inputs]
        status = images[call.module].status(call.function, given, [arrays[index] for index in call.outputs])
        assert status == 0, f"{call.function} gave {status}"
    return [arrays[index] for index in compiled.procedure.outputs]
