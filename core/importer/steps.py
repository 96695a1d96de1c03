"""The steps of an import: what each makes good in a message, in order, and what the model's record says of it.

Repairs bring what ONNX Runtime takes into the form that the checks expect; rewrites follow the checks, and bring the
model to one opset, without functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import onnx
import onnx.inliner
import onnx_ir as ir

from graft.core.graph.exception_translation import CONTRADICTIONS, REFUSALS, readable, tidy
from graft.core.graph.protos import every_graph, order, put_nodes, subgraphs, types_of
from graft.core.importer import header
from graft.core.importer.completion import complete_outputs, drop_zip_maps, merge_imports, name_domains, say_halves
from graft.core.importer.function_bodies import expand_functions, has_functions, is_expanded
from graft.core.importer.gradients import is_gradient, type_gradients, write_gradients
from graft.core.importer.node_checks import check_nodes
from graft.core.importer.old_operators import name_old
from graft.core.importer.sparse import make_dense
from graft.core.importer.upgrade import IR_VERSION, level_functions, upgraded
from graft.core.operators.all import OPERATORS
from graft.core.passes.pipeline import PassResult
from graft.errors import ModelError

ONNX_DOMAINS = frozenset({"ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"})
Run = Callable[[onnx.ModelProto], tuple[onnx.ModelProto, str]]


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its name in the model's record, and what gives the model after it and a note, "" if nothing was done."""

    name: str
    run: Run


def applied(steps: Iterable[Step], proto: onnx.ModelProto, record: list[PassResult]) -> onnx.ModelProto:
    """Return a model after steps, one after the other; those that did something are added to the record."""
    for step in steps:
        proto, note = step.run(proto)
        if note:
            record.append(note_of(step.name, proto, note))
    return proto


def note_of(name: str, model: onnx.ModelProto | ir.Model, note: str) -> PassResult:
    """Return a row of the record for a step that changed a model."""
    nodes = len(model.graph.node) if isinstance(model, onnx.ModelProto) else len(model.graph)
    return PassResult(name, True, nodes, nodes, note)


def _in_place(work: Callable[[onnx.ModelProto], Iterable[str]], note: str = "{}", between: str = ", ") -> Run:
    """Return what does work in place that gives names or notes of what it did."""

    def run(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
        found = between.join(work(proto))
        return proto, note.format(found) if found else ""

    return run


def _opset(proto: onnx.ModelProto) -> int:
    return next((entry.version for entry in proto.opset_import if not entry.domain), 0)


def _complete_silently(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    header.complete_header(proto, IR_VERSION)
    header.complete_names(proto)
    header.compute_results(proto.graph)
    header.state_conditions(proto.graph)
    return proto, ""


def _name_old(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    opset = _opset(proto)
    names = name_old(proto, opset)
    return proto, f"{', '.join(names)} of opset {opset}" if names else ""


def _level_functions(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    names = level_functions(proto)
    return proto, f"{', '.join(names)} to opset {_opset(proto)}" if names else ""


def _sort_nodes(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    return proto, "nodes did not stand in an order to run" if _sort_graph(proto.graph) else ""


def _sort_graph(graph: onnx.GraphProto) -> bool:
    nodes = list(graph.node)
    changed = False
    for inner in (inner for node in nodes for inner in subgraphs(node)):
        changed |= _sort_graph(inner)
    sequence = order(nodes)
    if any(old is not new for old, new in zip(nodes, sequence, strict=True)):
        put_nodes(graph, sequence)
        return True
    return changed


def _complete_outputs(proto: onnx.ModelProto) -> Iterable[str]:
    return complete_outputs(proto, _foreign_expanded)


def _foreign_expanded(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in the terms of ONNX, where it has operators that ONNX does not know."""
    if has_functions(proto):
        for run in (_inline_functions, upgraded, _expand_functions):
            proto, _ = run(proto)
    return proto


def _check_with_onnx(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    wrong = _contradiction(proto)
    if wrong is None:
        return proto, ""
    rest = _without_stated(proto)
    if rest is None or _contradiction(rest) is not None:
        with readable():
            model = ir.from_proto(proto)
        check_nodes(model)  # where an attribute is the cause, this says so
        raise ModelError(f"types or shapes of the model contradict each other: {tidy(wrong)}") from wrong
    return rest, f"shapes that the model states are wrong: {tidy(wrong)}"


def _contradiction(proto: onnx.ModelProto) -> Exception | None:
    """Return what ONNX's inference finds wrong with types and shapes; raise ModelError for anything else wrong."""
    try:
        with readable():
            onnx.checker.check_model(proto, full_check=True)
    except CONTRADICTIONS as error:
        # twice: within the body of an operator's definition, where onnx itself may be wrong
        return None if str(error).count("Inference error(s)") > 1 else error
    return None


def _without_stated(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model with the shapes of results as they are inferred, not as it states them; None where that fails."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    known = {node.domain for graph in every_graph(copy.graph) for node in graph.node} <= {"", *ONNX_DOMAINS}
    made = {name for node in copy.graph.node for name in node.output}
    for place in reversed(range(len(copy.graph.value_info))):
        if known and copy.graph.value_info[place].name in made:
            del copy.graph.value_info[place]
    for value in copy.graph.output:
        if value.name in made and value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        complete_outputs(copy, _foreign_expanded)
    except ModelError:
        return None
    return copy


def _inline_functions(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    if not proto.functions:
        return proto, ""
    note = f"functions inlined: {', '.join(function.name for function in proto.functions)}"
    header.state_defaults(proto)
    try:
        inlined = onnx.inliner.inline_local_functions(proto, convert_version=True)
    except (*REFUSALS, RuntimeError) as error:
        raise ModelError(f"the model's functions cannot be inlined: {tidy(error)}") from error
    del inlined.functions[:]
    return inlined, note


def _expand_before_gradients(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """Do what `_expand_functions` does, but for operators with a derivative of their own that gradients are taken of.

    Types of their results have to be stated, for nobody infers them.
    """
    stated = types_of(proto.graph) if any(map(is_gradient, proto.graph.node)) else {}

    def is_wanted(node: onnx.NodeProto) -> bool:
        operator = OPERATORS.get(node.op_type, node.domain)
        has_rule = operator is not None and operator.vjp is not None and stated.keys() >= set(node.output) - {""}
        return is_expanded(node) and not (stated and has_rule)

    expanded, names = expand_functions(proto, is_wanted)
    return expanded, f"functions of {', '.join(names)}" if names else ""


def _expand_functions(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """Write what ONNX defines by other operators as these, where nobody computes it as a whole."""
    expanded, names = expand_functions(proto)
    return expanded, f"functions of {', '.join(names)}" if names else ""


REPAIRS = (
    Step("complete-header", _complete_silently),
    Step("merge-imports", _in_place(lambda proto: filter(None, [merge_imports(proto)]))),
    Step("drop-uncalled-functions", _in_place(header.drop_uncalled)),
    Step("complete-imports", _in_place(header.complete_imports, "operator sets that nodes use: {}")),
    Step("make-dense", _in_place(lambda proto: make_dense(proto.graph), "sparse tensors made dense: {}")),
    Step("name-old-operators", _name_old),
    Step("level-functions", _level_functions),
)
"""What ONNX Runtime takes and the checks do not, made good."""
REWRITES = (
    Step("sort-nodes", _sort_nodes),
    Step("name-domains", _in_place(name_domains, "operators of ONNX Runtime: {}")),
    Step("drop-zip-maps", _in_place(lambda proto: drop_zip_maps(proto.graph), between="; ")),
    Step("say-halves", _in_place(lambda proto: say_halves(proto.graph), "half of the spectra {}")),
    Step("type-gradients", _in_place(type_gradients)),
    Step("complete-outputs", _in_place(_complete_outputs, "shapes inferred of {}")),
    Step("forget-stated-shapes", _check_with_onnx),
    Step("inline-functions", _inline_functions),
    Step("upgrade-opset", upgraded),
    Step("expand-functions", _expand_before_gradients),
    Step("write-gradients", _in_place(write_gradients)),
    Step("expand-functions-behind-gradients", _expand_functions),
)
"""What exporters leave out or write twice, made good; then one opset, without functions."""
