"""PartitionGraph: the model whose graphs call region functions, built anew from the decisions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.partition.annotate_target import Annotation
from graft.partition.copying import ValueMap, copy_node, fresh_outputs
from graft.partition.graph import IndexedGraph, bodies, is_constant_node, topological, unique_name
from graft.partition.merge_composite import Group
from graft.partition.region import COMPOSITE_DOMAIN, OPERANDS, REGION_DOMAIN
from graft.partition.signature import formal_inputs, operands_of, results_of, signature_text
from graft.partition.units import Unit, Units
from graft.runtime.extents import Extent, Symbol, symbols_of

IR_VERSION = 10
"""The first ONNX IR version in which functions carry types of values."""


@dataclass(slots=True)
class Cut:
    """One region: its backend (None: the nodes stay in the graph) and its units, in topological order."""

    backend: str | None
    units: list[int]
    nodes: list[int]
    name: str = ""
    """The global symbol, which `name_regions` gives."""
    parted: str = ""
    """Why it is no part of the region before it, where one was parted."""


@dataclass(slots=True)
class GraphCuts:
    """A graph cut into regions, and likewise the bodies of the control flow that stays in it."""

    graph: IndexedGraph
    units: Units
    annotation: Annotation
    cuts: list[Cut]
    inner: dict[int, dict[str, GraphCuts]] = field(default_factory=dict)
    """By node number, then by body (`graft.partition.graph.bodies`)."""
    symbols: dict[int, str] = field(default_factory=dict)
    """The symbol of every composite by the number of its unit, which `name_regions` gives."""


KeptNames = Mapping[tuple[str, frozenset[str]], str]
"""The symbols of regions by backend and names of nodes."""


def name_regions(functions: Iterable[ir.OperatorIdentifier], cuts: GraphCuts, kept: KeptNames | None = None) -> None:
    """Give every region and composite a symbol that no function has, and order cuts for execution, in bodies, too.

    Regions that were compiled already are called as they are in ``kept``. Raises ModelError for a graph with a cycle.
    """
    kept = kept or {}
    _Names({name for _, name, _ in functions} | set(kept.values()), kept).graph(cuts)


@dataclass(slots=True)
class _Names:
    taken: set[str]
    kept: KeptNames
    counts: dict[str, int] = field(default_factory=dict)

    def graph(self, cuts: GraphCuts) -> None:
        cuts.cuts = _emission_order(cuts)
        for cut in cuts.cuts:
            if cut.backend is not None:
                known = self.kept.get((cut.backend, frozenset(cuts.graph.names[node] for node in cut.nodes)))
                cut.name = known or self._symbol(cut.backend)
            for number in cut.units:
                unit = cuts.units.units[number]
                if unit.group is not None:
                    cuts.symbols[number] = self._symbol(unit.group.composite.name)
                elif cut.backend is None:
                    for inner in (inner for index in unit.nodes for inner in cuts.inner.get(index, {}).values()):
                        self.graph(inner)

    def _symbol(self, preferred: str) -> str:
        stem = re.sub(r"\W", "_", preferred, flags=re.ASCII)
        stem = f"_{stem}" if not stem or stem[0].isdigit() else stem
        while True:
            number = self.counts.get(stem, 0)
            self.counts[stem] = number + 1
            symbol = f"{stem}_{number}"
            if symbol not in self.taken:
                self.taken.add(symbol)
                return symbol


@dataclass(frozen=True, slots=True)
class PartitionGraph:
    """Builds the partitioned model from cuts that `name_regions` has named. The model given is only read.

    1. A region becomes a function in `REGION_DOMAIN`, a composite one in `COMPOSITE_DOMAIN` that the region calls.
    2. Inputs and outputs of a region are distinct values in order of first use; they keep their names. Those of a
       composite are the operands and results of its pattern, in the order in which it is written (`OPERANDS`).
    3. Constants stay initialisers of the graph that holds them and are passed to the functions.
    4. Control flow of the runtime stays in its graph, with its bodies partitioned.
    """

    name: ClassVar[str] = "partition-graph"

    def run(self, model: ir.Model, cuts: GraphCuts) -> ir.Model:
        """Return the new model."""
        builder = _Builder(dict(model.opset_imports))
        builder.taken.update(_node_names(cuts))
        functions = [function.clone() for function in model.functions.values()]
        graph = builder.graph(cuts, {})
        functions.extend(builder.functions)
        domains = {function.domain for function in functions} & {REGION_DOMAIN, COMPOSITE_DOMAIN}
        for domain in sorted(domains):
            graph.opset_imports[domain] = 1
        return ir.Model(
            graph,
            ir_version=max(model.ir_version or IR_VERSION, IR_VERSION),
            producer_name="graft",
            domain=model.domain,
            model_version=model.model_version,
            doc_string=model.doc_string,
            functions=functions,
            metadata_props=dict(model.metadata_props),
        )


@dataclass(slots=True)
class _Builder:
    opsets: dict[str, int]
    taken: set[str] = field(default_factory=set)
    functions: list[ir.Function] = field(default_factory=list)

    def graph(self, cuts: GraphCuts, outer: Mapping[ir.Value, ir.Value]) -> ir.Graph:
        """Return the partitioned graph; ``outer`` maps the values of enclosing graphs."""
        source = cuts.graph.graph
        values = ValueMap(outer)
        inputs = [values.add(value) for value in source.inputs]
        initializers = [values.add_once(value) for value in source.initializers.values()]
        for node in source:
            if is_constant_node(node):
                tensor = node.attributes["value"].as_tensor()
                initializers.append(values.add(node.outputs[0], tensor))
        nodes: list[ir.Node] = []
        crossing = _crossing(cuts)
        for cut in cuts.cuts:
            if cut.backend is None:
                for number in cut.units:
                    nodes.extend(self._alone(cuts, number, values, crossing))
            else:
                nodes.append(self._region(cuts, cut, values, crossing))
        result = ir.Graph(
            inputs,
            [values[value] for value in source.outputs],
            nodes=nodes,
            initializers=initializers,
            doc_string=source.doc_string,
            opset_imports=dict(source.opset_imports),
            name=source.name,
            metadata_props=dict(source.metadata_props),
        )
        return result

    def _alone(self, cuts: GraphCuts, number: int, values: ValueMap, crossing: set[ir.Value]) -> list[ir.Node]:
        """Return the nodes of a unit that stands in no region."""
        unit = cuts.units.units[number]
        if unit.group is not None:
            return [self._composite(cuts, number, unit.group, values, crossing)]
        return [self._plain(cuts, index, values) for index in unit.nodes]

    def _plain(self, cuts: GraphCuts, index: int, values: ValueMap) -> ir.Node:
        node = cuts.graph.nodes[index]
        replaced: dict[str, ir.Attr] = {}
        built = {key: self.graph(inner, values.all) for key, inner in cuts.inner.get(index, {}).items()}
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.GRAPH and name in built:
                replaced[name] = ir.AttrGraph(name, built[name])
            elif attribute.type == ir.AttributeType.GRAPHS and f"{name}[0]" in built:
                count = len(attribute.as_graphs())
                replaced[name] = ir.AttrGraphs(name, [built[f"{name}[{i}]"] for i in range(count)])
        return copy_node(node, values, name=cuts.graph.names[index], replaced=replaced)

    def _region(self, cuts: GraphCuts, cut: Cut, values: ValueMap, crossing: set[ir.Value]) -> ir.Node:
        assert cut.backend is not None
        graph, units = cuts.graph, cuts.units.units
        read = external_reads(graph, [units[number] for number in cut.units])
        written = written_values(graph, cut.nodes, crossing)
        inner = ValueMap({})
        inputs = [inner.add(value) for value in read]
        needed = set(written)
        nodes: list[ir.Node] = []
        for number in cut.units:
            unit = units[number]
            if unit.group is None:
                nodes.extend(copy_node(graph.nodes[i], inner, name=graph.names[i]) for i in unit.nodes)
            else:
                nodes.append(self._composite(cuts, number, unit.group, inner, needed))
        metadata = {"Compiler": cut.backend, "global_symbol": cut.name}
        outputs = [inner[value] for value in written]
        self._add_function(REGION_DOMAIN, cut.name, inputs, outputs, nodes, metadata)
        return self._call(REGION_DOMAIN, cut.name, read, written, values, metadata)

    def _composite(
        self, cuts: GraphCuts, number: int, group: Group, values: ValueMap, needed: set[ir.Value]
    ) -> ir.Node:
        graph, unit, symbol = cuts.graph, cuts.units.units[number], cuts.symbols[number]
        operands = operands_of(graph, unit, group)
        read = [operand.value for operand in operands if operand.value is not None]
        written = results_of(graph, unit, group, needed | _read_outside(graph, unit.nodes))
        inner = ValueMap({})
        for value in dict.fromkeys(read):
            inner.add(value)
        copies = {graph.nodes[i]: copy_node(graph.nodes[i], inner, name=graph.names[i]) for i in unit.body}
        inputs = formal_inputs(operands, inner, copies)
        metadata = {
            "Compiler": group.backend,
            "Composite": group.composite.name,
            "PartitionedFromPattern": "_".join(graph.nodes[i].op_type for i in unit.body),
        }
        signature = metadata | {OPERANDS: signature_text(operands)}
        outputs = [inner[value] for value in written]
        nodes = list(copies.values())
        self._add_function(COMPOSITE_DOMAIN, symbol, inputs, outputs, nodes, signature)
        return self._call(COMPOSITE_DOMAIN, symbol, read, written, values, metadata)

    def _call(
        self,
        domain: str,
        symbol: str,
        read: Sequence[ir.Value],
        written: Sequence[ir.Value],
        values: ValueMap,
        metadata: dict[str, str],
    ) -> ir.Node:
        return ir.Node(
            domain,
            symbol,
            [values[value] for value in read],
            outputs=fresh_outputs(written, values),
            name=unique_name(symbol, self.taken),
            metadata_props=dict(metadata),
        )

    def _add_function(
        self,
        domain: str,
        name: str,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        nodes: Sequence[ir.Node],
        metadata: dict[str, str],
    ) -> None:
        used = {node.domain for node in nodes} | {""}
        opsets = {key: self.opsets.get(key, 1) for key in sorted(used | set(_body_domains(nodes)))}
        graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports=opsets, name=name)
        function = ir.Function(domain, name, graph=graph, attributes=())
        function.metadata_props.update(metadata)
        self.functions.append(function)


def external_reads(graph: IndexedGraph, units: Sequence[Unit]) -> list[ir.Value]:
    """Return the values that units read and do not produce, each once, in order of first use."""
    produced = {value for unit in units for index in unit.nodes for value in graph.nodes[index].outputs}
    found: dict[ir.Value, None] = {}
    for unit in units:
        copies = () if unit.group is None else unit.group.copies
        again = {value for index in copies for value in graph.nodes[index].outputs}
        for index in unit.body:
            for value in graph.reads(index):
                if value not in produced and value not in again:
                    found[value] = None
    return list(found)


def written_values(graph: IndexedGraph, nodes: Sequence[int], needed: set[ir.Value]) -> list[ir.Value]:
    """Return the values of a set of nodes that are needed outside, in order; the last output where none is."""
    written = [value for index in nodes for value in graph.nodes[index].outputs if value in needed]
    return written or [graph.nodes[nodes[-1]].outputs[0]]


def _read_outside(graph: IndexedGraph, nodes: Sequence[int]) -> set[ir.Value]:
    """Return the values of a composite that other nodes of the graph read."""
    inside = {graph.nodes[index] for index in nodes}
    return {value for node in inside for value in node.outputs if any(use.node not in inside for use in value.uses())}


def _crossing(cuts: GraphCuts) -> set[ir.Value]:
    """Return the values that some cut reads from another, the graph's outputs, and what gives their extents values."""
    crossing = set(cuts.graph.graph.outputs)
    for cut in cuts.cuts:
        crossing.update(external_reads(cuts.graph, [cuts.units.units[number] for number in cut.units]))
    return crossing | _binders(cuts, crossing)


def _binders(cuts: GraphCuts, crossing: set[ir.Value]) -> set[ir.Value]:
    """Return values that stay inside their regions but for a symbol: an extent of theirs, and part of one that crosses.

    A program knows a symbol from an axis of a tensor of its own; ``d*h`` of one that crosses tells neither.
    """
    graph = cuts.graph
    wanted = {one for value in crossing for extent in _extents(value) for one in symbols_of(extent)}
    for value in (*graph.graph.inputs, *crossing):
        wanted.difference_update(one for one in _extents(value) if isinstance(one, Symbol))
    found: set[ir.Value] = set()
    for unit in cuts.units.units if wanted else ():
        for value in (value for index in unit.nodes for value in graph.nodes[index].outputs if unit.group is None):
            if known := wanted.intersection(_extents(value)):
                found.add(value)
                wanted -= known
    return found


def _extents(value: ir.Value) -> tuple[Extent, ...]:
    return tuple(extent for extent in dimensions_of(value) or () if extent is not None)


def _emission_order(cuts: GraphCuts) -> list[Cut]:
    """Return the cuts in a topological order that keeps close to the model's order."""
    ordered = sorted(cuts.cuts, key=lambda cut: cut.nodes[-1])
    cut_of = [0] * len(cuts.units.units)
    for number, cut in enumerate(ordered):
        for unit in cut.units:
            cut_of[unit] = number
    predecessors: list[set[int]] = []
    for number, cut in enumerate(ordered):
        before = {cut_of[other] for unit in cut.units for other in cuts.units.predecessors[unit]}
        predecessors.append(before - {number})
    if all(other < number for number, before in enumerate(predecessors) for other in before):
        return ordered
    return [ordered[number] for number in topological(predecessors, cuts.graph.graph)]


def _node_names(cuts: GraphCuts) -> Iterable[str]:
    yield from cuts.graph.names
    for inner in cuts.inner.values():
        for body in inner.values():
            yield from _node_names(body)


def _body_domains(nodes: Iterable[ir.Node]) -> Iterable[str]:
    for node in nodes:
        for _, body in bodies(node):
            for inner in body:
                yield inner.domain
            yield from _body_domains(body)
