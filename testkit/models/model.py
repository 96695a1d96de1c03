"""Random models: their parts, how they are drawn from a seed, and their protos.

A model is drawn node by node from the rows of `table`. Every node is computed when it is drawn, so that a row picks its
operands by what they hold, and a result that is not finite or too large is dropped. Operators that jump (Round, ArgMax,
comparisons) read exact values only: those that every backend computes to the same bits. So whatever differs by more
than rounding is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from graft.testkit.models.control import CONTROL
from graft.testkit.models.draw import OPSET, Draw, Unfit, bodies, opset_of, reads
from graft.testkit.models.net import model_proto, typed
from graft.testkit.models.options import PLAIN, Options
from graft.testkit.models.reference import quietly
from graft.testkit.models.rows import Row
from graft.testkit.models.source import Source
from graft.testkit.models.table import ROWS

TYPES = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64,
}  # fmt: skip
TOLERANCES = {"float16": 0.06, "bfloat16": 0.4, "float32": 5e-4, "float64": 5e-4}
"""What rounding may take of the largest number of an output, over a dozen operators."""
OLDER = (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)


@dataclass(frozen=True, slots=True)
class RandomModel:
    """A model as its parts: inputs and constants by name, nodes in order, and the values of all by name.

    ``symbols`` are the dimensions by name of inputs that have some. ``tolerance`` is what may be lost of the largest
    number of an output.
    """

    seed: int
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    outputs: tuple[str, ...]
    arrays: Mapping[str, np.ndarray]
    opset: int = OPSET
    symbols: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    tolerance: float = 5e-4
    special: bool = False

    @property
    def proto(self) -> onnx.ModelProto:
        """The ONNX model, without types for inner values: Graft infers them."""
        arrays = self.arrays
        return model_proto(
            self.nodes,
            [typed(name, arrays[name], self.symbols.get(name)) for name in self.inputs],
            [typed(name, arrays[name], [None] * arrays[name].ndim if self.symbols else None) for name in self.outputs],
            (numpy_helper.from_array(arrays[name], name) for name in self.constants),
            self.opset,
            f"seed_{self.seed}",
        )

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs of the one run whose outputs are known."""
        return {name: self.arrays[name] for name in self.inputs}

    @property
    def expected(self) -> dict[str, np.ndarray]:
        """What `onnx.reference` computes."""
        return {name: self.arrays[name] for name in self.outputs}

    @property
    def operators(self) -> list[str]:
        """The operators of all nodes, those of bodies included."""
        return [node.op_type for node in _all_nodes(self.nodes)]

    def __str__(self) -> str:
        return f"seed {self.seed}\n{onnx.printer.to_text(self.proto)}"


def random_model(seed: int, options: Options | None = None, rows: Sequence[Row] = ROWS) -> RandomModel:
    """Return the model of a seed, the same on every machine, with inputs and with what `onnx.reference` computes."""
    return model_of(Source(seed), seed, options or Options(), rows)


def draw_model(seed: int, operators: int | None = None) -> RandomModel:
    """Return a plain model of a seed, with 2 to 12 drawn rows unless ``operators`` says how many."""
    return random_model(seed, PLAIN if operators is None else replace(PLAIN, nodes=(operators, operators)))


def model_of(source: Source, seed: int, options: Options, table: Sequence[Row] = ROWS) -> RandomModel:
    """Return the model that a source's choices make."""
    names = [name for name, _ in options.types]
    kind = names[source.weighted([weight for _, weight in options.types])]
    draw = Draw(seed, source, options, TYPES[kind], source.random() < options.special)
    draw.input(draw.floats(draw.extents(draw.integer(0, 5))))
    if draw.chance(0.03):
        draw.input(draw.floats((*draw.extents(draw.integer(0, 2)), 0)))
    drawn = (*table, *CONTROL) if draw.chance(options.control) else table
    rows = [row for row in drawn if _may_be(row, options.operators)]
    extra = [row.weight * (10 if row in CONTROL else 1) for row in rows]
    with np.errstate(all="ignore"):
        _fill(draw, rows, extra, draw.integer(*options.nodes))
    model = _finished(draw)
    model = replace(model, tolerance=TOLERANCES[kind], special=draw.special)
    if draw.chance(options.older):
        model = _older(model, draw)
    return _symbolic(model, draw) if draw.chance(options.symbolic) else model


def _may_be(row: Row, allowed: frozenset[str] | None) -> bool:
    """Whether a row may have allowed operators alone: one that is called after an operator has that."""
    return allowed is None or row.name in allowed or not onnx.defs.has(row.name)


def _fill(draw: Draw, rows: Sequence[Row], weights: Sequence[float], wanted: int) -> None:
    """Draw rows until there are so many nodes, or nothing fits."""
    for _ in range(30 * wanted):
        if len(draw.nodes) >= wanted:
            break
        row = rows[draw.rng.weighted(weights)]
        before = len(draw.values), len(draw.inputs), len(draw.nodes)
        try:
            row.make(draw)
        except Unfit:
            draw.undo(before)
            continue
        allowed = draw.options.operators
        if allowed is not None and any(one.op_type not in allowed for one in _all_nodes(draw.nodes[before[2] :])):
            draw.undo(before)


def _finished(draw: Draw) -> RandomModel:
    read = {name for node in draw.nodes for name in reads(node)}
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
        opset_of(_all_nodes(draw.nodes)),
    )
    return pruned(whole)


def _older(model: RandomModel, draw: Draw) -> RandomModel:
    """Return the model in an older opset if it is valid there, with what it computes then."""
    older = replace(model, opset=draw.one_of(OLDER))
    try:
        proto = older.proto
        onnx.checker.check_model(proto, full_check=True)
        found = quietly(proto, older.feeds)
    except Exception:  # whatever onnx has against it
        return model
    same = all(
        isinstance(array, np.ndarray | np.generic)
        and (np.shape(array), array.dtype) == (model.arrays[name].shape, model.arrays[name].dtype)
        for name, array in zip(older.outputs, found, strict=True)
    )
    arrays = dict(zip(older.outputs, map(np.asarray, found), strict=True))
    return replace(older, arrays={**older.arrays, **arrays}) if same else model


def _symbolic(model: RandomModel, draw: Draw) -> RandomModel:
    """Return the model with names in place of some numbers of its inputs' shapes."""
    symbols: dict[str, tuple[int | str, ...]] = {}
    for name in model.inputs:
        shape = model.arrays[name].shape
        symbols[name] = tuple(
            (f"e{extent}" if draw.chance(0.4) else f"{name}_{axis}") if draw.chance(0.5) else extent
            for axis, extent in enumerate(shape)
        )
    return replace(model, symbols=symbols)


def pruned(model: RandomModel) -> RandomModel:
    """Return the model without nodes, constants and inputs that no output needs."""
    needed = set(model.outputs)
    nodes: list[onnx.NodeProto] = []
    for node in reversed(model.nodes):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(reads(node))
    return replace(
        model,
        nodes=tuple(nodes),
        inputs=tuple(name for name in model.inputs if name in needed),
        constants=tuple(name for name in model.constants if name in needed),
    )


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from _all_nodes(body.node)
