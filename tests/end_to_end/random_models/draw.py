"""A model while it is drawn, node by node; every node is computed at once by `onnx.reference`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from graft.core.model.shapes import infer_proto
from graft.plugins.reference.own import OWN

OPSET = 24
LARGEST = 300.0
EXTENTS = (1, 1, 1, 2, 2, 3, 4, 5, 8, 16, 17)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the model with what it holds; ``exact`` says that all backends have these very bits."""

    name: str
    array: np.ndarray
    exact: bool
    constant: bool = False


@dataclass(slots=True)
class Draw:
    """A model while it is drawn, and the choices that rows make."""

    seed: int
    rng: np.random.Generator
    values: list[Value] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        """Return True in ``share`` of all draws."""
        return bool(self.rng.random() < share)

    def one_of(self, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def integer(self, low: int, high: int) -> int:
        """Return an integer of ``[low, high]``."""
        return int(self.rng.integers(low, high + 1))

    def extents(self, rank: int) -> tuple[int, ...]:
        """Return a shape, of at most 4,096 elements and often with extents of 1."""
        shape: list[int] = []
        for _ in range(rank):
            fitting = [extent for extent in EXTENTS if extent * int(np.prod(shape)) <= 4096]
            shape.append(self.one_of(fitting))
        return tuple(shape)

    def floats(self, shape: Sequence[int], low: float = -2.0, high: float = 2.0) -> np.ndarray:
        """Return uniform float32 numbers."""
        return np.asarray(self.rng.uniform(low, high, tuple(shape)), np.float32)

    def input(self, array: np.ndarray) -> Value:
        """Return a new input of the model."""
        value = Value(f"x{len(self.inputs)}", array, exact=True)
        self.inputs.append(value.name)
        self.values.append(value)
        return value

    def constant(self, array: np.ndarray | Sequence[int]) -> Value:
        """Return a new constant; a sequence becomes int64."""
        held = np.asarray(array) if isinstance(array, np.ndarray | np.generic) else np.asarray(array, np.int64)
        value = Value(f"c{len(self.values)}", held, exact=True, constant=True)
        self.values.append(value)
        return value

    def operand(self, array: np.ndarray) -> Value:
        """Return a constant or an input that holds ``array``."""
        return self.constant(array) if self.chance(0.7) else self.input(array)

    def pick(self, fits: Callable[[np.ndarray], bool], *, exact: bool = False) -> Value | None:
        """Return a computed value or an input that fits, later ones more often; None if there is none."""
        fitting = [one for one in self.values if not one.constant and (one.exact or not exact) and fits(one.array)]
        if not fitting:
            return None
        return fitting[max(int(self.rng.integers(len(fitting))) for _ in range(2))]

    def call(
        self, op_type: str, *inputs: Value | None, outputs: int = 1, exact: bool | None = None, **attributes: Any
    ) -> list[Value]:
        """Add a node and return its outputs; raise `Unfit` where they are not finite or too large.

        Outputs are exact where all inputs are and ``exact`` is True; by default they are for what is no float.
        """
        first = sum(len(node.output) for node in self.nodes)
        names = [f"v{first + index}" for index in range(outputs)]
        given = ["" if one is None else one.name for one in inputs]
        node = helper.make_node(op_type, given, names, name=f"n{len(self.nodes)}", **attributes)
        arrays = computed(node, {one.name: one.array for one in inputs if one is not None})
        for array in arrays:
            if array.size > 20_000 or (array.dtype.kind == "f" and not np.all(np.abs(array) <= LARGEST)):
                raise Unfit
        kept = all(one is None or one.exact for one in inputs)
        made = [
            Value(name, array, exact=kept and (exact if exact is not None else array.dtype.kind != "f"))
            for name, array in zip(names, arrays, strict=True)
        ]
        self.nodes.append(node)
        self.values += made
        return made


class Unfit(Exception):
    """A row does not fit the values there are."""


def computed(node: onnx.NodeProto, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return what `onnx.reference` computes for one node.

    Raises `Unfit` for what it cannot, and where it gives another shape than is inferred.
    """
    model = _single(node, arrays)
    try:
        inferred = infer_proto(model).graph.output
        with np.errstate(all="ignore"):
            found = [
                np.asarray(array) for array in ReferenceEvaluator(model, new_ops=list(OWN)).run(None, dict(arrays))
            ]
    except Exception as error:
        raise Unfit from error
    for value, array in zip(inferred, found, strict=True):
        sizes = value.type.tensor_type.shape.dim if value.type.tensor_type.HasField("shape") else None
        if sizes is not None and not agree([one.dim_value or None for one in sizes], array.shape):
            raise Unfit
    return found


def agree(inferred: Sequence[int | None], shape: Sequence[int]) -> bool:
    """Whether a shape is what was inferred; 0 stands for a size that is not known, or for none."""
    pairs = list(zip(inferred, shape, strict=False))
    return len(inferred) == len(shape) and all(one is None or one == size for one, size in pairs)


def _single(node: onnx.NodeProto, arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    def info(name: str) -> onnx.ValueInfoProto:
        array = arrays[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        [node], "one", [info(name) for name in dict.fromkeys(node.input) if name],
        [helper.make_value_info(name, onnx.TypeProto()) for name in node.output],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
