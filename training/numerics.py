"""Where numbers stop being finite: the first node that gives a NaN, or an infinity, that no operand of it has.

An infinity among inputs or weights (the mask of an attention) is no fault, nor is what stays infinite behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graft.compiler.request import Backends
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.plugins.registry.manager import MANAGER, PluginManager
from graft.quantization.statistics.observation import Running
from graft.runtime.arguments import FEEDS, SHAPES, TEXT, WHOLE, optional, takes
from graft.training.editing import named, values_of
from graft.training.gradients import FLOATS

TESTS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"NaN": np.isnan, "infinity": np.isinf}


@dataclass(frozen=True, slots=True)
class NotFinite:
    """A value with elements that are ``kind``, "NaN" or "infinity", and the node that made it.

    ``node`` and ``operator`` are "" where it is an input or a weight; ``is_forward`` says whether the loss depends on
    the node, None where no loss was named; ``first`` is the place of the first of ``count`` elements.
    """

    value: str
    kind: str
    count: int
    elements: int
    first: tuple[int, ...]
    node: str = ""
    operator: str = ""
    is_forward: bool | None = None

    def __str__(self) -> str:
        where = f"{self.operator} (node '{self.node}'): " if self.operator else ""
        behind = ", which no operand has" if self.operator else ", and nothing computes it"
        passes = {None: "", True: ", in the forward pass", False: ", behind the forward pass"}
        return (
            f"{where}'{self.value}' has {self.count} of {self.elements} elements that are {self.kind}, the first at "
            f"{list(self.first)}{behind}{passes[self.is_forward]}"
        )


@takes(model=SOURCE, inputs=FEEDS, of=optional(TEXT), shapes=optional(SHAPES), threads=optional(WHOLE),
       manager=optional(MANAGER))  # fmt: skip
def check_numerics(
    model: Source,
    inputs: Mapping[str, np.ndarray],
    *,
    of: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    threads: int | None = None,
    manager: PluginManager | None = None,
    backends: Backends = None,
) -> NotFinite | None:
    """Run a model, such as one of gradients, with all its values kept; return where numbers stop being finite.

    That is an input or weight that has a NaN, else the first node, in the order of the model, with a NaN or an infinity
    in a result and none of that kind in its operands; None if there is none. Values of float16, bfloat16, float32 and
    float64 in the main graph are looked at. ``of`` is the loss, by which the fault is told to be in the forward pass or
    behind it. ``backends`` run it, the built-in compiler if left out; they fuse nothing, as every value is kept. Raises
    what compiling and running raise.
    """
    loaded = load(model, shapes=shapes)
    values = values_of(loaded)
    forward = None if of is None else _behind(values[named(values, of, "the loss")])
    names = [one.name or "" for node in loaded.graph for one in node.outputs if one.name and one.dtype in FLOATS]
    found = {**inputs, **Running(threads, manager, backends=backends).runner(loaded, names)(dict(inputs))}
    weights = {name: one.const_value for name, one in loaded.graph.initializers.items() if one.dtype in FLOATS}
    found |= {name: tensor.numpy() for name, tensor in weights.items() if tensor is not None}
    for name in (*inputs, *weights):
        if name in found and (kinds := _kinds(found, name)) and "NaN" in kinds:
            return _fault(found[name], name, "NaN")
    for node in loaded.graph:
        given = {kind for name in _read(node) for kind in _kinds(found, name)}
        for value in node.outputs:
            for kind in sorted(_kinds(found, value.name or "") - given):
                own = node.name or value.name or ""
                is_forward = None if forward is None else node in forward
                return _fault(found[value.name or ""], value.name or "", kind, own, node.op_type, is_forward)
    return None


def _kinds(values: Mapping[str, np.ndarray], name: str) -> set[str]:
    """Return which of `TESTS` hold of an element of a value; none do of one that is not of floats."""
    if name not in values:
        return set()
    array = np.asarray(values[name])
    if ir.DataType.from_numpy(array.dtype) not in FLOATS:
        return set()
    return {kind for kind, test in TESTS.items() if test(array).any()}


def _fault(array: np.ndarray, value: str, kind: str, *where: str | bool | None) -> NotFinite:
    places = np.argwhere(TESTS[kind](array))
    return NotFinite(value, kind, len(places), array.size, tuple(map(int, places[0])), *where)  # type: ignore[arg-type]


def _read(node: ir.Node) -> Iterator[str]:
    """Yield the names of what a node reads, by itself and in its bodies."""
    yield from (one.name or "" for one in node.inputs if one is not None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph():
                yield from _read(inner)


def _behind(value: ir.Value) -> set[ir.Node]:
    """Return the nodes that a value depends on."""
    found: set[ir.Node] = set()
    rest = [value.producer()]
    while rest:
        node = rest.pop()
        if node is not None and node not in found:
            found.add(node)
            rest += [one.producer() for one in node.inputs if one is not None]
    return found
