"""A model while it is drawn, node by node; every node is computed at once by `onnx.reference`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from graft.core.shapes.inference import infer_proto
from graft.testkit.models.net import Operators, model_proto, typed
from graft.testkit.models.options import Options
from graft.testkit.models.reference import quietly
from graft.testkit.models.source import Source

OPSET = 24
NEWEST = onnx.defs.onnx_opset_version()
LARGEST = 300.0
SPECIALS = (np.nan, np.inf, -np.inf, 1e-40, -1e-40, -0.0, 0.0)
UNSTATED = frozenset({
    "ArgMax", "ArgMin", "TopK", "MaxPool", "GlobalMaxPool", "Hardmax", "Cast", "CastLike", "QuantizeLinear", "Mod",
    "DynamicQuantizeLinear", "Sign", "Unique", "ScatterND", "ScatterElements", "HardSigmoid", "Clip", "GridSample",
    "DeformConv", "Col2Im", "DFT", "STFT",
})  # fmt: skip
"""Operators for which ONNX does not say what becomes of a NaN, or that lose it in libraries (oneDNN: the last two)."""
EXTENTS = (1, 1, 1, 2, 2, 3, 4, 5, 8, 16, 17)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the model with what it holds; ``exact`` says that all backends have these very bits."""

    name: str
    array: np.ndarray
    exact: bool
    constant: bool = False


@dataclass(slots=True)
class Draw(Operators):
    """A model while it is drawn, and the choices that rows make."""

    seed: int
    rng: Source
    options: Options = field(default_factory=Options)
    real: Any = np.float32
    special: bool = False
    prefix: str = ""
    values: list[Value] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        """Return True in ``share`` of all draws."""
        return bool(self.rng.random() < share)

    def one_of(self, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        return choices[self.rng.below(len(choices))]

    def integer(self, low: int, high: int) -> int:
        """Return an integer of ``[low, high]``."""
        return low + self.rng.below(high - low + 1)

    def extents(self, rank: int) -> tuple[int, ...]:
        """Return a shape, of at most 4,096 elements and often with extents of 1."""
        shape: list[int] = []
        for _ in range(rank):
            fitting = [extent for extent in EXTENTS if extent * int(np.prod(shape)) <= 4096]
            shape.append(self.one_of(fitting))
        return tuple(shape)

    def floats(self, shape: Sequence[int], low: float = -2.0, high: float = 2.0) -> np.ndarray:
        """Return uniform numbers of the model's floating-point type."""
        return np.asarray(self.rng.uniform(low, high, tuple(shape)).astype(self.real))

    def input(self, array: np.ndarray) -> Value:
        """Return a new input of the model, with special values strewn in where the model has such."""
        array = np.asarray(array)
        if self.special and array.dtype == self.real and array.size and self.chance(0.5):
            array = array.copy()
            for _ in range(self.integer(1, 3)):
                array.reshape(-1)[self.integer(0, array.size - 1)] = self.one_of(SPECIALS)
        value = Value(f"{self.prefix}x{len(self.inputs)}", array, exact=True)
        self.inputs.append(value.name)
        self.values.append(value)
        return value

    def constant(self, array: Any) -> Value:
        """Return a new constant; a sequence becomes int64."""
        held = np.asarray(array) if isinstance(array, np.ndarray | np.generic) else np.asarray(array, np.int64)
        value = Value(f"{self.prefix}c{len(self.values)}", held, exact=True, constant=True)
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
        return fitting[max(self.integer(0, len(fitting) - 1) for _ in range(2))]

    @property
    def opset(self) -> int:
        """The newest opset: a model with one of its operators is of that, others of `OPSET`."""
        return NEWEST

    def call(
        self, operator: str, *inputs: Value | None, outputs: int = 1, exact: bool | None = None, **attributes: Any
    ) -> Any:
        """Add a node and return its output, or a list of several; raise `Unfit` where they are not finite or too large.

        Outputs are exact where all inputs are and ``exact`` is True; by default they are for what is no float.
        """
        first = sum(len(node.output) for node in self.nodes)
        names = [f"{self.prefix}v{first + index}" for index in range(outputs)]
        given = ["" if one is None else one.name for one in inputs]
        node = helper.make_node(operator, given, names, name=f"{self.prefix}n{len(self.nodes)}", **attributes)
        held = {one.name: one.array for one in self.values}
        arrays = computed(node, {name: held[name] for name in reads(node)})
        if operator in UNSTATED and any(one is not None and has_nan(one.array) for one in inputs):
            raise Unfit
        if not all(array.size <= 20_000 and self._is_usable(array) for array in arrays):
            raise Unfit
        kept = all(one is None or one.exact for one in inputs)
        made = [
            Value(name, array, exact=kept and (exact if exact is not None else not is_real(array)))
            for name, array in zip(names, arrays, strict=True)
        ]
        self.nodes.append(node)
        self.values += made
        return made[0] if outputs == 1 else made

    def undo(self, before: tuple[int, int, int]) -> None:
        """Drop what came after so many values, inputs and nodes."""
        del self.values[before[0] :], self.inputs[before[1] :], self.nodes[before[2] :]

    def inner(self, *values: Value) -> Draw:
        """Return a draw for the body of a node, which starts with ``values``."""
        prefix = f"{self.prefix}b{len(self.values)}_{self.integer(0, 1 << 20)}_"
        return Draw(self.seed, self.rng, self.options, self.real, self.special, prefix, list(values))

    def _is_usable(self, array: np.ndarray) -> bool:
        """Whether the numbers among the elements are not too large, and all are numbers unless special ones go."""
        if not is_real(array):
            return True
        wide = array.astype(np.float64)
        return bool(np.all((np.abs(wide) <= LARGEST) | (~np.isfinite(wide) & self.special)))


class Unfit(Exception):
    """A row does not fit the values there are."""


def is_real(array: np.ndarray) -> bool:
    """Whether an array is of a floating-point type, bfloat16 among them."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def has_nan(array: np.ndarray) -> bool:
    """Whether there is something among floating-point elements that is no number."""
    return is_real(array) and not bool(np.isfinite(array.astype(np.float64)).all())


def reads(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads: its inputs, and what its bodies take from outside."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in bodies(node):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        for inner in graph.node:
            names |= dict.fromkeys(name for name in reads(inner) if name not in own)
            own |= set(inner.output)
        names |= dict.fromkeys(value.name for value in graph.output if value.name not in own)
    return list(names)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs among the attributes of a node."""
    return (one.g for one in node.attribute if one.type == onnx.AttributeProto.GRAPH)


def opset_of(nodes: Iterable[onnx.NodeProto]) -> int:
    """Return the opset of a model of these nodes: `OPSET`, or `NEWEST` where an operator is newer."""
    return OPSET if all(onnx.defs.has(node.op_type, OPSET, "") for node in nodes) else NEWEST


def computed(node: onnx.NodeProto, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return what `onnx.reference` computes for one node.

    Raises `Unfit` for what it cannot, and where it gives another type or shape than is inferred.
    """
    model = _single(node, arrays)
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        inferred = infer_proto(model).graph.output
        found = [np.asarray(array) for array in quietly(model, dict(arrays))]
    except Exception as error:
        raise Unfit from error
    for value, array in zip(inferred, found, strict=True):
        sizes = value.type.tensor_type.shape.dim if value.type.tensor_type.HasField("shape") else None
        if sizes is not None and not agree([one.dim_value or None for one in sizes], array.shape):
            raise Unfit
        if value.type.tensor_type.elem_type != helper.np_dtype_to_tensor_dtype(array.dtype):
            raise Unfit
    return found


def agree(inferred: Sequence[int | None], shape: Sequence[int]) -> bool:
    """Whether a shape is what was inferred; 0 stands for a size that is not known, or for none."""
    pairs = list(zip(inferred, shape, strict=False))
    return len(inferred) == len(shape) and all(one is None or one == size for one, size in pairs)


def _single(node: onnx.NodeProto, arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    inputs = [typed(name, array) for name, array in arrays.items()]
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output]
    return model_proto([node], inputs, outputs, [], opset_of([node]))
