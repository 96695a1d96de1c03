"""Models of a few nodes, and what the emulator makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import graft
from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Function
from graft.errors import GraftError
from graft.plugins.cuda.backend import CudaBackend
from graft.runtime.procedure import Module

Shape = Sequence[int | str]


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Shape]],
    constants: Mapping[str, np.ndarray] | None = None,
    output: str = "y",
) -> onnx.ModelProto:
    """A model of nodes with typed inputs and one output."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (dtype, shape) in inputs.items()
    ]
    fixed = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    made = helper.make_graph(list(nodes), "g", given, [onnx.ValueInfoProto(name=output)], fixed)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def node(operator: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    """A node; inputs with spaces between."""
    return helper.make_node(operator, inputs.split(), [output], name=f"{operator.lower()}_{output}", **attributes)


@dataclass(frozen=True)
class Ran:
    """What a model gave by blocks and threads, what the reference gives, and how the kernels were made."""

    ours: np.ndarray
    theirs: np.ndarray
    schedules: tuple[dict[str, Any], ...]

    @property
    def error(self) -> float:
        """The largest difference, against the largest number."""
        return float(np.abs(self.ours - self.theirs).max() / np.abs(self.theirs).max())


def ran(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], **requested: Any) -> Ran:
    """Run a model of one output in the emulator and by the reference."""
    program = graft.compile(model, ["cuda_emulator"], cache=False, strict=True, **requested)
    schedules = tuple(dict(call.schedule) for call in program.description.procedures[0].calls if call.schedule)
    (ours,) = program.run(dict(inputs)).values()
    (theirs,) = graft.compile(model, ["reference"]).run(dict(inputs)).values()
    return Ran(np.asarray(ours, np.float64), np.asarray(theirs, np.float64), schedules)


def scheduled(model: onnx.ModelProto, precision: str = "float32", target: str = "sm_80") -> list[Function]:
    """The scheduled functions of a model of one region."""
    found: list[Function] = []

    class Scheduler(CudaBackend):
        """Keeps the functions, and gives a module that nothing loads."""

        def emit(self, functions: Sequence[Function], target: Target) -> Module:
            found.extend(functions)
            return Module("", "none", tuple(one.name for one in functions), b"", bound="it is nothing")

    with suppress(GraftError):
        graft.compile(model, [Scheduler()], cache=False, strict=True, target=target, precision=precision)
    return found
