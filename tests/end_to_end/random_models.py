"""Random models that are valid and well conditioned, with the answers of `onnx.reference`, and their shrinking.

A model is drawn node by node from the rows of `random_operators`. Every node is computed when it is drawn, so that a row
picks its operands by what they hold, and a result that is not finite or too large is dropped. Operators that jump
(Round, ArgMax, comparisons) read exact values only: those that every backend computes to the same bits. So whatever
differs by more than rounding is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

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


@dataclass(frozen=True, slots=True)
class RandomModel:
    """A model as its parts: inputs and constants by name, nodes in order, and the values of all by name."""

    seed: int
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    outputs: tuple[str, ...]
    arrays: Mapping[str, np.ndarray]

    @property
    def proto(self) -> onnx.ModelProto:
        """The ONNX model, without types for inner values: Graft infers them."""
        graph = helper.make_graph(
            list(self.nodes),
            f"seed_{self.seed}",
            [self._info(name) for name in self.inputs],
            [self._info(name) for name in self.outputs],
            [numpy_helper.from_array(self.arrays[name], name) for name in self.constants],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs of the one run whose outputs are known."""
        return {name: self.arrays[name] for name in self.inputs}

    @property
    def expected(self) -> dict[str, np.ndarray]:
        """What `onnx.reference` computes."""
        return {name: self.arrays[name] for name in self.outputs}

    def __str__(self) -> str:
        return f"seed {self.seed}\n{onnx.printer.to_text(self.proto)}"

    def _info(self, name: str) -> onnx.ValueInfoProto:
        array = self.arrays[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


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


class Unfit(Exception):  # noqa: N818 - no error: the row is drawn again
    """A row does not fit the values there are."""


def computed(node: onnx.NodeProto, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return what `onnx.reference` computes for one node; raise `Unfit` for what it cannot, such as LRN of rank 3."""
    model = _single(node, arrays)
    with np.errstate(all="ignore"):
        try:
            return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, dict(arrays))]
        except Exception as error:
            raise Unfit from error


def _single(node: onnx.NodeProto, arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    def info(name: str) -> onnx.ValueInfoProto:
        array = arrays[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        [node], "one", [info(name) for name in dict.fromkeys(node.input) if name],
        [helper.make_value_info(name, onnx.TypeProto()) for name in node.output],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def draw_model(seed: int, operators: int | None = None) -> RandomModel:
    """Return the model of a seed, with 2 to 12 drawn rows unless ``operators`` says how many."""
    from tests.end_to_end.random_operators import ROWS

    draw = Draw(seed, np.random.default_rng(seed))
    rank = draw.integer(0, 5)
    draw.input(draw.floats(draw.extents(rank)))
    if draw.chance(0.03):
        draw.input(np.zeros((*draw.extents(draw.integer(0, 2)), 0), np.float32))
    weights = np.array([row.weight for row in ROWS]) / sum(row.weight for row in ROWS)
    wanted = operators or draw.integer(2, 12)
    for _ in range(30 * wanted):
        if len(draw.nodes) >= wanted:
            break
        row = ROWS[int(draw.rng.choice(len(ROWS), p=weights))]
        before = len(draw.values), len(draw.inputs), len(draw.nodes)
        try:
            row.make(draw)
        except Unfit:
            del draw.values[before[0] :], draw.inputs[before[1] :], draw.nodes[before[2] :]
    return _finished(draw)


def _finished(draw: Draw) -> RandomModel:
    read = {name for node in draw.nodes for name in node.input}
    made = [name for node in draw.nodes for name in node.output]
    outputs = [name for name in made if name not in read or draw.chance(0.1)]
    arrays = {value.name: value.array for value in draw.values}
    whole = RandomModel(
        draw.seed,
        tuple(draw.inputs),
        tuple(value.name for value in draw.values if value.constant),
        tuple(draw.nodes),
        tuple(outputs),
        arrays,
    )
    return pruned(whole)


def pruned(model: RandomModel) -> RandomModel:
    """Return the model without nodes, constants and inputs that no output needs."""
    needed = set(model.outputs)
    nodes: list[onnx.NodeProto] = []
    for node in reversed(model.nodes):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(node.input)
    return replace(
        model,
        nodes=tuple(nodes),
        inputs=tuple(name for name in model.inputs if name in needed),
        constants=tuple(name for name in model.constants if name in needed),
    )


def shrunk(model: RandomModel, fails: Callable[[RandomModel], bool]) -> RandomModel:
    """Return a model that still fails, made of as few nodes as dropping outputs and cutting off producers gives."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(model):
            if fails(candidate):
                model, smaller = candidate, True
                break
    return model


def _candidates(model: RandomModel) -> list[RandomModel]:
    made = [name for node in model.nodes for name in node.output if name]
    single = [replace(model, outputs=(name,)) for name in made if (name,) != model.outputs]
    cut = [
        replace(
            model,
            nodes=tuple(one for one in model.nodes if one is not node),
            inputs=(*model.inputs, *(name for name in node.output if name)),
        )
        for node in model.nodes
        if not set(node.output) & set(model.outputs)
    ]
    small = [pruned(one) for one in (*single, *cut)]
    return [one for one in small if len(one.nodes) + len(one.outputs) < len(model.nodes) + len(model.outputs)]


def difference(model: RandomModel, got: Mapping[str, np.ndarray]) -> str | None:
    """Return in what ``got`` differs from the expected outputs by more than rounding, None if in nothing."""
    for name, expected in model.expected.items():
        array = np.asarray(got[name])
        if array.shape != expected.shape or array.dtype != expected.dtype:
            return f"{name}: {array.dtype}{list(array.shape)} instead of {expected.dtype}{list(expected.shape)}"
        if expected.dtype.kind != "f":
            if not np.array_equal(array, expected):
                return f"{name}: {array!r} instead of {expected!r}"
            continue
        bound = 5e-4 * max(1.0, float(np.max(np.abs(expected), initial=0.0)))
        worst = np.abs(array.astype(np.float64) - expected)
        if not np.all(worst <= bound):
            return f"{name}: off by {np.max(worst):.3g}, {array!r} instead of {expected!r}"
    return None
