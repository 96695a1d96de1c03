"""Parts of a model as models of their own, fed with the values that the whole model has there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx


@dataclass(frozen=True, slots=True)
class Part:
    """Some nodes of a model as a model, with its inputs and what its outputs are to be."""

    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes."""
        return tuple(node.name for node in self.model.graph.node)


@dataclass(frozen=True)
class Whole:
    """A model, and the arrays that its inputs and the results of its nodes have in one run.

    With ``concrete`` the inputs of parts have the shapes of their arrays, else those that the model says, as far as it
    does: a symbol of the model is then one of the part.
    """

    model: onnx.ModelProto
    values: Mapping[str, np.ndarray]
    concrete: bool = True

    def part(self, numbers: Collection[int], outputs: Collection[str] | None = None) -> Part | None:
        """Return the nodes with these numbers as a model; None where what goes in or out of them is no tensor.

        Its outputs are what other nodes, or the model, take from them; with ``outputs`` only those among these.
        """
        graph = self.model.graph
        nodes = [graph.node[number] for number in sorted(numbers)]
        made = {name for node in nodes for name in node.output if name}
        used = list(dict.fromkeys(name for node in nodes for name in names_read(node) if name not in made))
        inputs = [name for name in used if name not in self._constants]
        rest = (node for number, node in enumerate(graph.node) if number not in numbers)
        taken = {one.name for one in graph.output} | {name for node in rest for name in names_read(node)}
        results = [name for node in nodes for name in node.output if name in (taken if outputs is None else outputs)]
        if not results or any(name not in self.values for name in (*inputs, *results)):
            return None
        proto = onnx.ModelProto()
        proto.CopyFrom(self._frame)
        proto.graph.node.extend(nodes)
        proto.graph.initializer.extend(self._constants[name] for name in used if name in self._constants)
        proto.graph.input.extend(self._info(name, self.concrete) for name in inputs)
        proto.graph.output.extend(self._info(name, False) for name in results)
        return Part(proto, self._arrays(inputs), self._arrays(results))

    def _arrays(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        return {name: self.values[name] for name in names}

    @cached_property
    def _constants(self) -> dict[str, onnx.TensorProto]:
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def _frame(self) -> onnx.ModelProto:
        """The model without its graph's contents."""
        frame = onnx.ModelProto(ir_version=self.model.ir_version, producer_name="graft")
        frame.opset_import.extend(self.model.opset_import)
        frame.metadata_props.extend(self.model.metadata_props)
        frame.functions.extend(self.model.functions)
        frame.graph.name = self.model.graph.name or "part"
        return frame

    @cached_property
    def _types(self) -> dict[str, onnx.ValueInfoProto]:
        graph = self.model.graph
        return {one.name: one for one in (*graph.value_info, *graph.input, *graph.output) if one.HasField("type")}

    def _info(self, name: str, concrete: bool) -> onnx.ValueInfoProto:
        known = self._types.get(name)
        if known is not None and not concrete:
            return known
        array = self.values[name]
        kind = known.type.tensor_type.elem_type if known else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnx.helper.make_tensor_value_info(name, kind, array.shape)


def whole_of(model: onnx.ModelProto, values: Mapping[str, np.ndarray], names: Sequence[str]) -> tuple[Whole, list[int]]:
    """Return a model with its values, and the numbers of the nodes that have these names."""
    wanted = set(names)
    return Whole(model, values), [number for number, node in enumerate(model.graph.node) if node.name in wanted]


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of the values that a node reads, those read by the graphs that it holds included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _read_outside(graph)


def _read_outside(graph: onnx.GraphProto) -> Iterator[str]:
    own = {one.name for one in (*graph.input, *graph.initializer)}
    own |= {name for node in graph.node for name in node.output}
    read = [*(name for node in graph.node for name in names_read(node)), *(one.name for one in graph.output)]
    yield from (name for name in read if name not in own)
