"""The JSON graph: a region as plain data, which library vendors read at load time.

This module needs neither onnx nor a compiler, so that a loader may use it where a program is deployed. The form:

    {"symbol": "npu_0",
     "nodes": [{"op": "input", "name": "x", "attrs": {"dtype": ["float32"], "shape": [[1, 4]]}},
               {"op": "const", "name": "w", "attrs": {"dtype": ["float32"], "shape": [[4, 2]]}},
               {"op": "kernel", "name": "npu.matmul_relu", "inputs": [[0, 0, 0], [1, 0, 0]],
                "attrs": {"dtype": ["float32"], "shape": [[1, 2]], "attributes": {}, "origin": ["mm", "act"],
                          "operands": {"x": [0], "weight": [1]},
                          "body": [{"op": "MatMul", "inputs": [[-1, 0], [-1, 1]]}, {"op": "Relu", "inputs": [[0, 0]]}],
                          "results": [[1, 0]]}}],
     "arg_nodes": [0, 1], "heads": [[2, 0, 0]], "node_row_ptr": [0, 1, 2, 3]}

The inputs of a composite are the operands of its pattern, in the order in which it is written; ``operands`` gives the
positions by capture name. An entry ``[node, index, version]`` is output ``index`` of a node; the version is 0 and node
-1 is an absent optional input. ``dtype`` and ``shape`` have one row per output. ``node_row_ptr`` is the prefix sum of
the output counts, so ``node_row_ptr[node] + index`` numbers all tensors.

A graph whose shapes vary has symbols, each with the axis of the input that says it, and a table of operations on them:

    "symbols": [{"name": "batch", "input": 0, "axis": 0}, {"name": "seq", "input": 0, "axis": 1}],
    "extents": [["mul", "s0", "s1"], ["add", "e0", 1]]

A dimension is then a number, ``"s1"`` (a symbol), ``"e1"`` (an entry of the table, whose operands are numbers, symbols
and earlier entries) or null where it is known only when the value exists. Operations are those of an artifact's
manifest (docs/runtime.md). `JsonGraph.at` gives the graph of numbers for given shapes of the inputs.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal, TypeVar

import numpy as np

from graft.errors import ArtifactError, GraftError, PluginError
from graft.runtime.extent_table import ExtentReader, ExtentWriter
from graft.runtime.extents import Extent, Operation, Symbol, evaluate

TRANSPOSE = "graft.transpose"
"""The name of kernels that transpose images for a backend that asks for channels last; Graft computes them."""
ABSENT = -1
"""The node of an entry for an optional input that is not given."""

Dimension = Extent | None
"""A number, an expression over the graph's symbols, or None: known only when the value exists."""
Array = TypeVar("Array")
NodeKind = Literal["input", "const", "kernel"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Output ``index`` of node ``node``; node `ABSENT` stands for no tensor."""

    node: int
    index: int = 0

    @property
    def is_absent(self) -> bool:
        """Whether this is an optional input that is not given."""
        return self.node == ABSENT


@dataclass(frozen=True, slots=True)
class BodyOperator:
    """One ONNX operator of a kernel.

    An input is (operator, output) for a result of an earlier operator of the same body, (-1, i) for input ``i`` of
    the kernel and None for an absent optional input. Attributes that have a default in the ONNX schema are always
    there. A non-finite float is the string "inf", "-inf" or "nan"; a tensor is ``{"dtype", "shape", "data"}``.
    """

    op: str
    inputs: tuple[tuple[int, int] | None, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A node: an input, a constant, or a kernel (a composite, or one operator) with the operators in its body."""

    op: NodeKind
    name: str
    """The name of the input or constant; of a kernel, the composite's name or the operator's."""
    dtype: tuple[str, ...]
    shape: tuple[tuple[Dimension, ...] | None, ...]
    inputs: tuple[Entry, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Those attributes of the body's operators whose name only one of them has."""
    body: tuple[BodyOperator, ...] = ()
    results: tuple[tuple[int, int], ...] = ()
    """Where in the body each output of the kernel comes from, as in `BodyOperator.inputs`."""
    origin: tuple[str, ...] = ()
    """The names of the model's nodes in this kernel."""
    operands: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Which inputs the pattern of a composite captures, by name; several where it repeats."""

    def position(self, name: str) -> int:
        """Return which input is the operand captured as ``name``; raise PluginError if the pattern has none."""
        if name not in self.operands:
            near = difflib.get_close_matches(name, self.operands, 1)
            known = ", ".join(self.operands) or "none"
            hint = f"did you mean '{near[0]}'?" if near else f"its operands with names: {known}"
            raise PluginError(f"{self.where} has no operand '{name}'; {hint}", node=self.name, operand=name)
        return self.operands[name][0]

    def named(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """Return what stands for the operands with names, by name, out of one item for each input."""
        return {name: arrays[places[0]] for name, places in self.operands.items()}

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute by its name, or as ``"Conv.strides"`` where several operators of the body have it."""
        operator, dot, plain = name.partition(".")
        if not dot:
            return self.attributes.get(name, default)
        return next(
            (row.attributes[plain] for row in self.body if row.op == operator and plain in row.attributes), default
        )

    @property
    def where(self) -> str:
        """``npu.matmul_relu (node 'mm')``: how messages name this node."""
        return f"{self.name} (node '{self.origin[0] if self.origin else self.name}')"


@dataclass(frozen=True, slots=True)
class GraphSymbol:
    """A symbol of a graph's shapes: axis ``axis`` of input number ``input`` is what it stands for."""

    name: str
    input: int
    axis: int


@dataclass(frozen=True, slots=True)
class JsonGraph:
    """A region as a list of nodes in execution order: inputs first, in the order of the call; then the others."""

    symbol: str
    nodes: tuple[JsonNode, ...]
    heads: tuple[Entry, ...]
    symbols: tuple[GraphSymbol, ...] = ()
    """Empty where all shapes are numbers; otherwise engines are made for what `at` gives."""

    @property
    def arg_nodes(self) -> tuple[int, ...]:
        """The numbers of the inputs and constants."""
        return tuple(number for number, node in enumerate(self.nodes) if node.op != "kernel")

    @property
    def node_row_ptr(self) -> tuple[int, ...]:
        """The prefix sum of the nodes' output counts, one longer than ``nodes``."""
        return tuple(accumulate((len(node.dtype) for node in self.nodes), initial=0))

    @property
    def inputs(self) -> tuple[JsonNode, ...]:
        """The inputs, in the order in which the compiled function gets them."""
        return tuple(node for node in self.nodes if node.op == "input")

    @property
    def constants(self) -> tuple[JsonNode, ...]:
        """The constants; their contents travel beside the graph, by name."""
        return tuple(node for node in self.nodes if node.op == "const")

    @property
    def kernels(self) -> tuple[JsonNode, ...]:
        """The kernels in execution order."""
        return tuple(node for node in self.nodes if node.op == "kernel")

    def run(
        self,
        inputs: Sequence[np.ndarray],
        constants: Mapping[str, np.ndarray],
        kernel: Callable[[JsonNode, list[np.ndarray | None]], Sequence[np.ndarray]],
    ) -> list[np.ndarray]:
        """Compute the heads: call ``kernel(node, arrays)`` for every kernel; a Python engine needs no more.

        Kernels named `TRANSPOSE` are computed here.
        """
        waiting = iter(inputs)
        values: list[Sequence[np.ndarray]] = []
        for node in self.nodes:
            match node.op:
                case "input":
                    values.append((next(waiting),))
                case "const":
                    values.append((constants[node.name],))
                case "kernel":
                    arrays = [None if one.is_absent else values[one.node][one.index] for one in node.inputs]
                    values.append((kernel if node.name != TRANSPOSE else _transposed)(node, arrays))
        return [values[head.node][head.index] for head in self.heads]

    def values_at(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return what the symbols are where the inputs have some shapes."""
        return {one.name: int(shapes[one.input][one.axis]) for one in self.symbols}

    def at(self, shapes: Sequence[Sequence[int]]) -> JsonGraph:
        """Return the graph for some shapes of its inputs: dimensions, and attributes that depend on them, as numbers.

        Raises GraftError for shapes that contradict the graph's, naming input and axis, and for an extent that comes
        out negative, naming the node.
        """
        values = self.values_at(shapes)
        for node, shape in zip(self.inputs, shapes, strict=True):
            _require_shape(self.symbol, node, shape, values)
        return replace(self, nodes=tuple(_node_at(node, values) for node in self.nodes), symbols=())

    def to_json(self) -> bytes:
        """Return the graph as JSON text in UTF-8; equal graphs give equal bytes."""
        extents = ExtentWriter(symbol.name for symbol in self.symbols)
        graph = {
            "symbol": self.symbol,
            "nodes": [_node_to_json(node, extents) for node in self.nodes],
            "arg_nodes": list(self.arg_nodes),
            "heads": [_entry_to_json(head) for head in self.heads],
            "node_row_ptr": list(self.node_row_ptr),
        }
        if self.symbols:
            graph |= {"symbols": [asdict(symbol) for symbol in self.symbols], "extents": extents.rows}
        return json.dumps(graph, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> JsonGraph:
        """Return the graph that `to_json` wrote; raise ArtifactError if the text is damaged."""
        try:
            graph = json.loads(data, parse_constant=_no_constant)
            symbols = tuple(GraphSymbol(row["name"], row["input"], row["axis"]) for row in graph.get("symbols", ()))
            extents = ExtentReader((one.name for one in symbols), graph.get("extents", ()))
            nodes = tuple(_node_from_json(node, extents) for node in graph["nodes"])
            heads = tuple(_entry_from_json(head) for head in graph["heads"])
            result = JsonGraph(graph["symbol"], nodes, heads, symbols)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise ArtifactError(
                f"damaged JSON graph: {type(error).__name__} {error}; compile the model again"
            ) from error
        _verify(result)
        return result


def _transposed(node: JsonNode, arrays: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
    (image,) = arrays
    assert image is not None
    return (np.ascontiguousarray(image.transpose(node.attributes["perm"])),)


def _require_shape(region: str, node: JsonNode, shape: Sequence[int], values: Mapping[str, int]) -> None:
    """Raise GraftError if an input of a shape is not what the graph says for values of its symbols."""
    wanted = node.shape[0]
    if wanted is None:
        return
    if len(wanted) != len(shape):
        raise GraftError(f"region '{region}': input '{node.name}' has {len(shape)} axes, not {len(wanted)}")
    for axis, (size, extent) in enumerate(zip(shape, wanted, strict=True)):
        if extent is not None and evaluate(extent, values) != size:
            bound = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise GraftError(
                f"region '{region}': input '{node.name}' has {size} at axis {axis}, but '{extent}' is "
                f"{evaluate(extent, values)} ({bound})"
            )


def _node_at(node: JsonNode, values: Mapping[str, int]) -> JsonNode:
    shapes = tuple(None if shape is None else tuple(_size(node, one, values) for one in shape) for shape in node.shape)
    return replace(node, shape=shapes, attributes=_at(node.attributes, values))


def _size(node: JsonNode, extent: Dimension, values: Mapping[str, int]) -> int | None:
    size = None if extent is None else evaluate(extent, values)
    if size is not None and size < 0:
        bound = ", ".join(f"{name} = {value}" for name, value in values.items())
        raise GraftError(f"{node.where}: '{extent}' is {size}, but an extent is at least 0 ({bound})", node=node.name)
    return size


def _at(attribute: Any, values: Mapping[str, int]) -> Any:
    """Return an attribute with the extents in it as numbers."""
    match attribute:
        case Symbol() | Operation():
            return evaluate(attribute, values)
        case Mapping():
            return {name: _at(one, values) for name, one in attribute.items()}
        case list() | tuple():
            return [_at(one, values) for one in attribute]
        case _:
            return attribute


def _attribute_to_json(attribute: Any, extents: ExtentWriter) -> Any:
    """Return an attribute as JSON values; an extent among them is ``{"extent": "e0"}``."""
    match attribute:
        case Symbol() | Operation():
            return {"extent": extents.dimension(attribute)}
        case Mapping():
            return {name: _attribute_to_json(one, extents) for name, one in attribute.items()}
        case list() | tuple():
            return [_attribute_to_json(one, extents) for one in attribute]
        case _:
            return attribute


def _attribute_from_json(attribute: Any, extents: ExtentReader) -> Any:
    match attribute:
        case {"extent": dimension, **rest} if not rest:
            return extents.extent(dimension)
        case Mapping():
            return {name: _attribute_from_json(one, extents) for name, one in attribute.items()}
        case list():
            return [_attribute_from_json(one, extents) for one in attribute]
        case _:
            return attribute


def _node_to_json(node: JsonNode, extents: ExtentWriter) -> dict[str, Any]:
    shapes = [
        None if shape is None else [None if one is None else extents.dimension(one) for one in shape]
        for shape in node.shape
    ]
    attrs: dict[str, Any] = {"dtype": list(node.dtype), "shape": shapes}
    row: dict[str, Any] = {"op": node.op, "name": node.name}
    if node.op == "kernel":
        row["inputs"] = [_entry_to_json(entry) for entry in node.inputs]
        attrs |= {
            "attributes": _attribute_to_json(node.attributes, extents),
            "origin": list(node.origin),
            **({"operands": {name: list(places) for name, places in node.operands.items()}} if node.operands else {}),
            "body": [_operator_to_json(operator) for operator in node.body],
            "results": [list(result) for result in node.results],
        }
    return row | {"attrs": attrs}


def _operator_to_json(operator: BodyOperator) -> dict[str, Any]:
    row: dict[str, Any] = {"op": operator.op}
    if operator.domain:
        row["domain"] = operator.domain
    row["inputs"] = [None if source is None else list(source) for source in operator.inputs]
    if operator.attributes:
        row["attributes"] = dict(operator.attributes)
    return row


def _entry_to_json(entry: Entry) -> list[int]:
    return [entry.node, entry.index, 0]


def _node_from_json(row: Mapping[str, Any], extents: ExtentReader) -> JsonNode:
    attrs = row["attrs"]
    return JsonNode(
        op=row["op"],
        name=row["name"],
        dtype=tuple(attrs["dtype"]),
        shape=tuple(
            None if shape is None else tuple(None if one is None else extents.extent(one) for one in shape)
            for shape in attrs["shape"]
        ),
        inputs=tuple(_entry_from_json(entry) for entry in row.get("inputs", ())),
        attributes=_attribute_from_json(attrs.get("attributes", {}), extents),
        body=tuple(_operator_from_json(operator) for operator in attrs.get("body", ())),
        results=tuple((operator, output) for operator, output in attrs.get("results", ())),
        origin=tuple(attrs.get("origin", ())),
        operands={name: tuple(places) for name, places in attrs.get("operands", {}).items()},
    )


def _operator_from_json(row: Mapping[str, Any]) -> BodyOperator:
    inputs = tuple(None if source is None else (source[0], source[1]) for source in row["inputs"])
    return BodyOperator(row["op"], inputs, dict(row.get("attributes", {})), row.get("domain", ""))


def _entry_from_json(row: Sequence[int]) -> Entry:
    node, index, _version = row
    return Entry(node, index)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _verify(graph: JsonGraph) -> None:
    """Check what `JsonGraph.run` and loaders rely on: every entry names an output of an earlier node."""
    if not all(isinstance(name, str) for name in (graph.symbol, *(node.name for node in graph.nodes))):
        raise ArtifactError("damaged JSON graph: a name is not a string; compile the model again")
    for number, node in enumerate(graph.nodes):
        if node.op not in ("input", "const", "kernel") or len(node.dtype) != len(node.shape):
            raise ArtifactError(f"damaged JSON graph: node {number} is malformed; compile the model again")
        places = [place for found in node.operands.values() for place in found]
        named = all(node.operands.values())
        if not named or not all(isinstance(place, int) and 0 <= place < len(node.inputs) for place in places):
            raise ArtifactError(f"damaged JSON graph: node {number} names an operand that it lacks; compile again")
        for entry in node.inputs:
            if not (isinstance(entry.node, int) and ABSENT <= entry.node < number) or _misses(graph, entry):
                raise ArtifactError(
                    f"damaged JSON graph: node {number} reads [{entry.node}, {entry.index}], which no earlier node "
                    "writes; compile the model again"
                )
    inputs = graph.inputs
    for symbol in graph.symbols:
        known = isinstance(symbol.input, int) and 0 <= symbol.input < len(inputs)
        shape = inputs[symbol.input].shape[0] if known else None
        if shape is None or not (isinstance(symbol.axis, int) and 0 <= symbol.axis < len(shape)):
            raise ArtifactError(
                f"damaged JSON graph: axis {symbol.axis} of input {symbol.input}, of symbol '{symbol.name}', "
                "is out of range; compile the model again"
            )
    for entry in graph.heads:
        if not (isinstance(entry.node, int) and 0 <= entry.node < len(graph.nodes)) or _misses(graph, entry):
            raise ArtifactError(
                f"damaged JSON graph: head [{entry.node}, {entry.index}] does not exist; compile the model again"
            )


def _misses(graph: JsonGraph, entry: Entry) -> bool:
    if entry.is_absent:
        return False
    return not (isinstance(entry.index, int) and 0 <= entry.index < len(graph.nodes[entry.node].dtype))
