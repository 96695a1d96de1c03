"""Random models that are valid and well conditioned, with the answers of `onnx.reference`, and their shrinking.

A model is drawn node by node from the rows of `table`. Every node is computed when it is drawn, so that a row picks its
operands by what they hold, and a result that is not finite or too large is dropped. Operators that jump (Round, ArgMax,
comparisons) read exact values only: those that every backend computes to the same bits. So whatever differs by more
than rounding is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.end_to_end.random_models.draw import OPSET, Draw, Unfit
from tests.end_to_end.random_models.table import ROWS


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


def draw_model(seed: int, operators: int | None = None) -> RandomModel:
    """Return the model of a seed, with 2 to 12 drawn rows unless ``operators`` says how many."""
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
