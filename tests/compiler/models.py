"""Small models and backends for tests of the front door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.graph.view import NodeView
from graft.core.machine.target import CompileOptions
from graft.core.reject import Reject
from graft.partition.region import Region
from graft.plugins.reference.backend import ReferenceBackend

BODY = "h = MatMul(x, w)\n r = Relu(h)\n y = Neg(r)"


def model(body: str = BODY, inputs: str = "float[2,3] x, float[3,4] w", outputs: str = "float[2,4] y") -> Any:
    """Return a checked model of ONNX text; its nodes are named by their outputs."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]>\ng ({inputs}) => ({outputs}) {{\n{body}\n}}'
    )
    onnx.checker.check_model(proto)
    for node in proto.graph.node:
        node.name = node.output[0]
    return proto


def feeds(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return seeded inputs."""
    generator = np.random.default_rng(0)
    return {
        value.name: np.asarray(
            generator.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim]),
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in proto.graph.input
    }


def check(program: graft.Program, proto: onnx.ModelProto) -> None:
    """Assert that a program gives what onnx.reference gives, twice."""
    given = feeds(proto)
    expected = ReferenceEvaluator(proto).run(None, given)
    for _ in range(2):
        results = program.run(given)
        for value, wanted in zip(proto.graph.output, expected, strict=True):
            np.testing.assert_allclose(results[value.name], wanted, rtol=1e-5, atol=1e-6)


class Vendor(graft.Backend):
    """A backend that takes some operators and compiles them as `reference` does, or as it is told."""

    name = "vendor"

    def __init__(
        self, *operators: str, compile_: Callable[[Region], object] | None = None, supports: object = True
    ) -> None:
        self.operators = operators
        self.compiled: list[str] = []
        self._compile = compile_
        self._answer = supports

    def supports(self, node: NodeView) -> bool | Reject:
        if node.op_type not in self.operators:
            return Reject("no-pattern", f"vendor has no rule for {node.op_type}")
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer  # type: ignore[return-value]

    def compile(self, region: Region, options: CompileOptions) -> Any:
        self.compiled.append(region.name)
        if self._compile is not None:
            return self._compile(region)
        module = ReferenceBackend().compile(region, options)
        return graft.Module(module.name, module.kind, module.functions, module.data, module.constants, "reference")


def raising(error: BaseException) -> Callable[[Region], object]:
    """Return a compile function that raises."""

    def compile_(region: Region) -> object:
        raise error

    return compile_


def kinds(program: graft.Program) -> Sequence[str]:
    """Return the kinds of a program's modules."""
    return [module.kind for module in program.description.modules]
