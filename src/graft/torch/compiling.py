"""The compilation of one ATen graph: parted, its parts compiled, the rest left as it is."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._higher_order_ops.effects import with_effects
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from graft.compiler.api import compile as compile_model
from graft.compiler.request import Request, plugins
from graft.core.importer.load import load
from graft.datatypes.conversion import convert, require_type
from graft.errors import GraftError
from graft.runtime.program import Program
from graft.torch.aten.builder import Refused
from graft.torch.aten.quantized import dequantized
from graft.torch.aten.table import ASSERTIONS
from graft.torch.conversion import converted, fake, has_gaps, is_getitem, is_number, refusal, symbols_of, where
from graft.torch.fallbacks import note
from graft.torch.options import Options
from graft.torch.partitioning import Part, before_drawing, parts_of, put_in_order
from graft.torch.programs import Digests, kept
from graft.torch.quantized import name_dequantisation
from graft.torch.region import Region
from graft.torch.tables import WHY, add_rows_in_place, rows_added

NAMES: dict[Any, str] = {rows_added: "aten.index_put.default", dequantized: "dequantized"}
"""What functions of ours that stand in graphs are called."""
CHOSEN: dict[Any, str] = {rows_added: WHY, **dict.fromkeys(ASSERTIONS, "an assertion: PyTorch checks what parts give")}
"""What is left to PyTorch by choice, also under ``strict``, with the reason."""


@dataclass(frozen=True)
class Row:
    """One ATen operator: where it stands in the model, where it runs, and why not elsewhere."""

    operator: str
    place: str
    part: str
    """The name of the part that is compiled, "" for PyTorch."""
    reason: str = ""


@dataclass
class CompiledGraph:
    """An ATen graph after its compilation, which `call` runs."""

    module: GraphModule
    rows: list[Row] = field(default_factory=list)
    programs: dict[str, Program] = field(default_factory=dict)


def compile_graph(
    module: GraphModule, options: Options, constants: Mapping[str, torch.Tensor] | None = None,
    digests: Digests | None = None,
) -> CompiledGraph:  # fmt: skip
    """Compile what can be of a functional ATen graph; ``constants`` are tensors of placeholders that do not change.

    Raises UnsupportedError for what stays in PyTorch under ``strict``.
    """
    digests = digests or Digests()
    add_rows_in_place(module)
    name_dequantisation(module)
    refused = {node: why for node in module.graph.nodes if (why := _refusal(node)) is not None}
    known = {node: one for node in module.graph.nodes if (one := _constant(module, node, constants or {})) is not None}
    while True:
        parts = parts_of(module, refused)
        if gaps := [node for part in parts for node in part.outputs if has_gaps(node)]:
            makers = (one.args[0] if is_getitem(one) else one for one in gaps)
            refused |= dict.fromkeys(makers, "its result has gaps in memory")
            continue
        compiled = []
        for number, part in enumerate(parts):
            try:
                compiled.append(_compiled(part, options, known, digests))
            except (Refused, GraftError) as error:
                _refuse(part, error, refused, number)
                break
        else:
            return _assembled(module, compiled, refused, options)


def check(options: Options) -> None:
    """Raise GraftError for options that no graph can be compiled with, such as the name of no backend."""
    request = Request(
        backends_of(options), threads=options.threads, precision=options.precision, plan=options.plan,
        isolation=options.isolate,
    )  # fmt: skip
    request.options()
    request.isolated(request.chosen())
    if options.datatype is not None:
        require_type(options.datatype)


def _operator(node: Node) -> Any:
    """Return what a node calls, also in order with others that have effects."""
    return node.args[1] if node.target is with_effects else node.target


def _refusal(node: Node) -> str | None:
    if _operator(node) in CHOSEN:
        return CHOSEN[_operator(node)]
    return refusal(node) if node.op == "call_function" and not is_getitem(node) and not is_number(node) else None


def _constant(module: GraphModule, node: Node, constants: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    if node.op == "get_attr":
        found = getattr(module, str(node.target), None)
        return found if isinstance(found, torch.Tensor) and found.device.type == "cpu" else None
    return constants.get(node.name) if node.op == "placeholder" else None


def _refuse(part: Part, error: Exception, refused: dict[Node, str], number: int) -> None:
    """Leave the operators that a failure names to PyTorch, all of the part where it names none."""
    origins = getattr(error, "facts", {}).get("nodes", ())
    by_place = {where(node): node for node in part.nodes}
    named = {by_place[one] for text in origins for one in (text, text.rpartition(".")[0]) if one in by_place}
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    for node in named or part.nodes:
        if not is_getitem(node):
            refused[node] = reason


def _compiled(
    part: Part, options: Options, constants: Mapping[Node, torch.Tensor], digests: Digests
) -> tuple[Part, Region]:
    """Convert, compile and load a part; raise Refused or GraftError, also where it cannot run here."""
    found = converted(part.nodes, part.outputs, constants)
    names = {name for value in found.model.graph.inputs for name in (value.shape or ()) if isinstance(name, str)}
    dims = {name: limits for name, limits in found.dims.items() if name in names} or None
    backends = backends_of(options)

    def compiled() -> Program:
        model, ranges = found.model, dims
        if options.datatype is not None:
            model, ranges = convert(load(model, dims=dims), options.datatype), None
        return compile_model(
            model, backends, place=None if options.backends or options.plan else "auto", dims=ranges,
            threads=options.threads or torch.get_num_threads(), precision=options.precision, plan=options.plan,
            isolation=options.isolate,
        )  # fmt: skip

    program = kept(found.model, options, backends, dims, compiled, digests)
    return part, Region(program, found)


def backends_of(options: Options) -> Any:
    """Return the backends that a user named, else all but the last resort: PyTorch is better than that."""
    if options.backends is not None or options.plan is not None:
        return options.backends
    return [one.name for one in plugins().backends(None) if one.name not in plugins().fallbacks()[-1:]]


def _assembled(
    module: GraphModule, compiled: Sequence[tuple[Part, Region]], refused: Mapping[Node, str],
    options: Options,
) -> CompiledGraph:  # fmt: skip
    """Put the programs into the graph in place of their parts."""
    result = CompiledGraph(module)
    inside = {node: f"part_{number}" for number, (part, _) in enumerate(compiled) for node in part.nodes}
    for node in module.graph.nodes:
        if node.op != "call_function" or is_getitem(node) or is_number(node):
            continue
        reason = "" if node in inside else refused.get(node, "a view, or too little to be worth a call")
        name = NAMES.get(_operator(node), str(_operator(node)))
        result.rows.append(Row(name, where(node), inside.get(node, ""), reason))
        if node in refused:
            note(name, reason, where(node), options.strict and _operator(node) not in CHOSEN)
    moved: dict[Node, Node] = {}
    drawn = before_drawing(module.graph)
    for number, (part, region) in enumerate(compiled):
        _replace(module, part, region, f"part_{number}", moved)
        result.programs[f"part_{number}"] = region.program
    put_in_order(module.graph, drawn)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.graph.set_codegen(torch.fx.graph._BoxedCodeGen())
    module.recompile()
    return result


def _replace(module: GraphModule, part: Part, region: Region, name: str, moved: dict[Node, Node]) -> None:
    """Call a region in place of the nodes of its part; ``moved`` are results of parts, by what they were before."""
    graph = module.graph
    given = (
        *(moved.get(one, one) for one in region.parts.inputs),
        *(_number(graph, one) for one in region.parts.symbols),
    )
    with graph.inserting_before(part.nodes[0]):
        call = graph.call_function(region, given)
    call.name = name
    before = call
    for place, node in enumerate(part.outputs):
        with graph.inserting_after(before):
            item = before = graph.call_function(operator.getitem, (call, place))
        item.meta = dict(node.meta)
        node.replace_all_uses_with(item)
        moved[node] = item
    for node in reversed(part.nodes):
        if not node.users:
            graph.erase_node(node)


def _number(graph: Graph, symbol: Any) -> Node:
    """Return a node that gives a symbol's number: one that comes in, or the extent of a tensor that does."""
    for node in graph.nodes:
        value = fake(node)
        if isinstance(value, torch.SymInt) and value.node.expr == symbol:
            return node
    for node in graph.nodes:
        value = fake(node)
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and symbol in symbols_of(value):
            for axis, extent in enumerate(value.shape):
                if isinstance(extent, torch.SymInt) and extent.node.expr == symbol:
                    with graph.inserting_after(node):
                        found = graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
                    found.meta["val"] = extent
                    return found
    raise Refused(f"nothing that comes in has the extent {symbol}")


Boxed = Callable[[list[Any]], Sequence[Any]]


def boxed(compiled: CompiledGraph) -> Boxed:
    """Return the compiled graph as AOTAutograd calls it: with one list, which it clears."""
    run = _only(compiled.module.graph)
    if run is None:
        _LazyGraphModule.force_recompile(compiled.module)  # else a call goes through `Module.__call__` first
    forward = compiled.module.forward if run is None else run

    def call(arguments: list[Any]) -> Sequence[Any]:
        return forward(arguments)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _only(graph: Graph) -> Callable[[list[Any]], Sequence[Any]] | None:
    """Return what runs a graph that is one part, whose results are the graph's; None where it is more."""
    holders = {node: place for place, node in enumerate(graph.find_nodes(op="placeholder"))}
    regions = [node for node in graph.nodes if isinstance(node.target, Region)]
    if len(regions) != 1 or any(node not in holders for node in regions[0].args):
        return None
    (part,) = regions
    (results,) = graph.output_node().args
    items = [node.args for node in results if isinstance(node, Node) and is_getitem(node)]
    wanted = [(part, place) for place in range(len(part.target.parts.outputs))]
    if items != wanted or len(items) != len(results) or len(graph.nodes) != len(holders) + len(items) + 2:
        return None
    places = [holders[node] for node in part.args]
    run: Callable[[tuple[Any, ...]], Sequence[Any]] = part.target.run

    def call(arguments: list[Any]) -> Sequence[Any]:
        given = (*[arguments[place] for place in places],)
        arguments.clear()
        return run(given)

    return call
