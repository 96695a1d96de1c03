"""Time of matching, merging and partitioning on synthetic graphs, by stage.

    python -m benchmarks.partition [NODES ...]

Prints a Markdown table in milliseconds. The graphs are chains with side branches of elementwise operators, one per
cent of which no vendor takes, as in the graphs on which partitioners have been quadratic.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from time import perf_counter

import onnx_ir as ir

from graft.core.collection import collection_paused
from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.partition.annotate_target import AnnotateTarget
from graft.partition.graph import index_graph
from graft.partition.merge_composite import MergeComposite, Table
from graft.partition.merge_regions import MergeRegions
from graft.partition.placement.partitioner import partition
from graft.partition.region_cut import Traffic
from graft.partition.units import make_units
from graft.patterns import Composite, is_op, wildcard

UNSUPPORTED = 0.01
SIZES = (1_000, 10_000, 40_000, 100_000)
ROUNDS = 3
TABLE = (
    Composite("vendor.mul_add_relu", is_op("Relu")(is_op("Mul")(wildcard(), wildcard()) + wildcard())),
    Composite("vendor.add_relu", is_op("Relu")(is_op("Add")(wildcard(), wildcard()))),
)


class Vendor:
    """Takes Add, Mul and Relu, and two composites of them."""

    name = "vendor"
    patterns = TABLE

    def supports(self, node: NodeView) -> bool | Reject:
        """Take Add, Mul and Relu."""
        return node.op_type in ("Add", "Mul", "Relu") or Reject("no-pattern", f"no rule for {node.op_type}")

    def available(self) -> str | None:
        """Run everywhere."""
        return None


class Rest(Vendor):
    """Takes everything."""

    name = "rest"
    patterns = ()

    def supports(self, node: NodeView) -> bool | Reject:
        """Take every operator."""
        return True


def synthetic(nodes: int, seed: int = 0) -> ir.Model:
    """Return a model of ``nodes`` elementwise operators on float32[64]; each reads the last and a recent value."""
    generator = random.Random(seed)
    kind = ir.TensorType(ir.DataType.FLOAT)
    values = [ir.Value(name="x", shape=ir.Shape([64]), type=kind)]
    made: list[ir.Node] = []
    for number in range(nodes):
        drawn = generator.random()
        operator = "Tanh" if drawn < UNSUPPORTED else generator.choice(("Add", "Mul", "Relu"))
        read = [values[-1]]
        if operator in ("Add", "Mul"):
            read.append(values[-generator.randint(1, min(20, len(values)))])
        node = ir.Node("", operator, read, name=f"n{number}")
        output = node.outputs[0]
        output.name, output.shape, output.type = f"v{number}", ir.Shape([64]), kind
        made.append(node)
        values.append(output)
    graph = ir.Graph(values[:1], values[-1:], nodes=made, opset_imports={"": 21}, name="synthetic")
    return ir.Model(graph, ir_version=10)


def best(action: Callable[[], object]) -> float:
    """Return the shortest time of an action in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        with collection_paused():
            started = perf_counter()
            action()
            times.append(perf_counter() - started)
    return min(times) * 1e3


def row(nodes: int) -> str:
    """Measure one size and return its table row."""
    model = synthetic(nodes)
    backends = (Vendor(), Rest())
    graph = index_graph(model.graph)
    composites = MergeComposite((Table("vendor", TABLE),))
    grouping = composites.run(graph)
    units = make_units(graph, grouping.groups)
    annotate = AnnotateTarget(backends)
    placement = annotate.run(graph, units.units, grouping, {}).placement
    merge = MergeRegions(("vendor", "rest"))
    traffic = Traffic(graph, units)
    regions = merge.run(units.predecessors, placement, traffic)
    times = (
        best(lambda: index_graph(model.graph)),
        best(lambda: composites.run(graph)),
        best(lambda: make_units(graph, grouping.groups)),
        best(lambda: annotate.run(graph, units.units, grouping, {})),
        best(lambda: merge.run(units.predecessors, placement)),
        best(lambda: merge.run(units.predecessors, placement, Traffic(graph, units))),
        best(lambda: partition(model, backends)),
    )
    cells = " | ".join(f"{milliseconds:,.0f}" for milliseconds in times)
    return f"| {nodes:,} | {len(grouping.groups):,} | {len(regions):,} | {cells} |"


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or list(SIZES)
    print(
        "| nodes | composites | regions | index | match | units | annotate | merge | merge and cut | all with model |"
    )
    print("|---" * 10 + "|")
    for nodes in sizes:
        print(row(nodes), flush=True)


if __name__ == "__main__":
    main()
