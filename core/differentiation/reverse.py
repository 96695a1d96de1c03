"""Reverse mode: from the last node to the first, each hands the gradients of its results on to its operands.

The rules are those of the table (the column ``vjp``); an operator without one is differentiated through the function
that defines it. Gradients of a value that many read are summed. What needs no gradient gets none: only values between
those asked for and those with a gradient are visited, and whole numbers and values without elements carry none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import onnx
from onnx import TensorProto

from graft.core.graph.protos import captures_of, fault_of, where_of
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.adjoint import Adjoint, Vjp, nowhere
from graft.core.operators.definition.function_body import OPSET, Body
from graft.core.operators.definition.table import Operator, Trait
from graft.core.rewriting.node_bodies import body_of, is_function
from graft.errors import GraftError, PluginError

NUMBERS = frozenset(range(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ + 1)) | {
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.UNDEFINED,
}  # fmt: skip
"""Element types whose values have gradients."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Nodes, by name, that are differentiated as one: the last computes the result of a rule's operands."""

    name: str
    """Of the composite."""
    backend: str
    vjp: Vjp
    nodes: frozenset[str]
    inner: frozenset[str]
    """Values that others than the last compute."""
    last: str
    operands: tuple[str, ...]

    def joined(self, nodes: Sequence[onnx.NodeProto], kept: Collection[str]) -> Sequence[onnx.NodeProto]:
        """Return nodes with one in the place of these, or the list itself: an inner value is kept."""
        last = next((node for node in nodes if node.name == self.last), None)
        if last is None or not self.inner.isdisjoint(kept):
            return nodes
        members = [node for node in nodes if node.name in self.nodes]
        one = onnx.NodeProto(op_type=self.name, name=last.name, input=self.operands, output=last.output)
        attributes = {attribute.name: attribute for node in reversed(members) for attribute in node.attribute}
        one.attribute.extend(attributes.values())
        return [one if node is last else node for node in nodes if node is last or node.name not in self.nodes]


def pull(
    body: Body,
    nodes: Sequence[onnx.NodeProto],
    gradients: Mapping[str, str],
    asked: Collection[str],
    wholes: Mapping[str, Whole] = MappingProxyType({}),
) -> dict[str, str]:
    """Write the gradients of values that nodes depend on; return them by value, without those that are zero.

    ``gradients`` are those of values that the nodes compute, or of values asked for; ``wholes`` has, by name, the nodes
    that stand for several (`Whole.joined`). Raises ModelError for an operator
    of which no derivative is known, and PluginError, with the plugin, for a rule that raises what is no GraftError,
    gives more gradients than there are operands, or one of another shape or type than its operand's.
    """
    varied = varied_of(body.types, nodes, asked)
    found = dict(gradients)
    for node in reversed(nodes):
        if not any(name in found and name in varied and not _is_empty(body.types, name) for name in node.output):
            continue
        operands = operands_of(node)
        adjoint = Adjoint(node, body, found, varied, pull)
        whole = wholes.get(node.name)
        rule, owner = (_rule_of(node, nodes, asked), "") if whole is None else (whole.vjp, whole.backend)
        for name, gradient in zip(operands, given(adjoint, rule, owner), strict=False):
            if gradient and name in varied:
                _check(adjoint, gradient, name, owner)
                body.types[gradient] = body.types[name] if _is_number(body.types, name) else body.types[gradient]
                found[name] = body("Add", found[name], gradient) if name in found else gradient
    return {name: found[name] for name in asked if name in found}


def operands_of(node: onnx.NodeProto) -> list[str]:
    """Return the names of a node's inputs, and of what its bodies read from outside behind them."""
    return [*node.input, *sorted(set(captures_of(node)))]


def varied_of(types: Mapping[str, onnx.TypeProto], nodes: Iterable[onnx.NodeProto], asked: Collection[str]) -> set[str]:
    """Return the values that have a gradient and depend on those asked for through such values, these included."""
    varied = set(asked)
    for node in nodes:
        if not varied.isdisjoint(operands_of(node)):
            varied.update(name for name in node.output if name and (_is_number(types, name) or _passes_integers(node)))
    return varied


def is_cut(types: Mapping[str, onnx.TypeProto], node: onnx.NodeProto) -> bool:
    """Whether no gradient comes through a node: its results are whole numbers, or constant but for jumps."""
    operator = OPERATORS.get(node.op_type, node.domain)
    if operator is not None and operator.vjp is nowhere:
        return True
    return not _passes_integers(node) and not any(_is_number(types, name) for name in node.output)


def _is_number(types: Mapping[str, onnx.TypeProto], name: str) -> bool:
    return name not in types or types[name].tensor_type.elem_type in NUMBERS


def _is_empty(types: Mapping[str, onnx.TypeProto], name: str) -> bool:
    """Whether a value is known to have no elements."""
    extents = types[name].tensor_type.shape.dim if name in types else ()
    return any(one.HasField("dim_value") and one.dim_value == 0 for one in extents)


def _passes_integers(node: onnx.NodeProto) -> bool:
    operator = OPERATORS.get(node.op_type, node.domain)
    return operator is not None and Trait.STRAIGHT_THROUGH in operator.traits


def _rule_of(node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], asked: Collection[str]) -> Vjp:
    operator = OPERATORS.get(node.op_type, node.domain)
    if operator is not None and operator.vjp is not None:
        return operator.vjp

    def by_function(f: Adjoint) -> Sequence[str]:
        def write(inner: Body) -> None:
            written = body_of(inner.node, {"": OPSET}, inner.types, inner.data, inner.fresh)
            if written is None:
                raise fault_of(node, f"no derivative of it is known; it stands on the path {_path(node, nodes, asked)}")
            for one in written:
                inner.add(one)

        return f.through(write)

    return by_function


def given(f: Adjoint, rule: Vjp, owner: str) -> Sequence[str]:
    """Return the gradients that a rule gives; behind those of the operands there may be "" for what is left out.

    ``owner`` is the backend whose rule of a composite it is, "" for that of an operator.
    Raises PluginError, with the plugin, for a rule that raises what is no GraftError, gives too many gradients, or what
    is no name of a value.
    """
    operands = len(operands_of(f.node))
    try:
        gradients = rule(f)
    except GraftError:
        raise
    except Exception as error:
        raise _fault(f, f"raised {type(error).__name__}: {error}", owner) from error
    if not isinstance(gradients, list | tuple) or not all(isinstance(one, str) for one in gradients):
        raise _fault(f, f"gives {gradients!r}, where names of values are expected", owner)
    if any(gradients[operands:]):
        raise _fault(f, f"gives {len(gradients)} gradients for {operands} operands", owner)
    for one in gradients:
        if one and one not in f.types and not any(one in (*node.input, *node.output) for node in (*f.nodes, f.node)):
            raise _fault(f, f"gives '{one}', which is no value", owner)
    return gradients


def _fault(f: Adjoint, fault: str, backend: str) -> PluginError:
    """Return the error that says what is wrong with the derivative of a node, and whose it is."""
    if backend:
        text = f"backend '{backend}': {where_of(f.node)}: its derivative {fault}"
        return PluginError(text, plugin=backend, operator=f.node.op_type, node=f.node.name)
    operator = OPERATORS.get(f.node.op_type, f.node.domain)
    name = operator.name if operator else f.node.op_type
    owner = OPERATORS.owner(name, f.node.domain)
    plugin = owner.removeprefix("plugin '").removesuffix("'")
    where = f"{owner}: {where_of(f.node)}" if owner else where_of(f.node)
    return PluginError(f"{where}: its derivative {fault}", plugin=plugin, operator=name, node=f.node.name)


def source_of(operator: Operator) -> str:
    """Return where the derivative of an operator comes from: ``rule``, ``function``, ``zero``, or "" for nowhere."""
    if operator.vjp is not None:
        return "zero" if operator.vjp is nowhere else "rule"
    return "function" if is_function(operator) else ""


def _path(node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], asked: Collection[str]) -> str:
    """Return a way from a value asked for through a node to the last, by the names of nodes."""
    producers = {name: one for one in nodes for name in one.output}
    depends: dict[str, str] = dict.fromkeys(asked, "")
    for one in nodes:
        source = next((name for name in operands_of(one) if name in depends), None)
        if source is not None:
            depends.update({name: source for name in one.output if name not in depends})
    before: list[onnx.NodeProto] = []
    name = next(name for name in operands_of(node) if name in depends)
    while depends[name]:
        before.insert(0, producers[name])
        name = depends[name]
    behind = [node]
    for one in nodes[list(nodes).index(node) + 1 :]:
        if set(behind[-1].output) & set(operands_of(one)):
            behind.append(one)
    return f"from '{name}' by {', '.join(map(where_of, (*before, *behind)))}"


def _check(f: Adjoint, gradient: str, operand: str, owner: str) -> None:
    """Raise PluginError where a rule gives a gradient that is not of its operand's type and rank."""
    if gradient not in f.types or operand not in f.types or not _is_number(f.types, operand):
        return
    own, wanted = f.types[gradient].tensor_type, f.types[operand].tensor_type
    if not own.HasField("shape") or not wanted.HasField("shape"):
        return
    sizes = zip(own.shape.dim, wanted.shape.dim, strict=False)
    agree = len(own.shape.dim) == len(wanted.shape.dim) and all(
        one.dim_value == other.dim_value or not (one.HasField("dim_value") and other.HasField("dim_value"))
        for one, other in sizes
    )
    if own.elem_type != wanted.elem_type or not agree:
        raise _fault(f, f"is {_shown(own)} for '{operand}', which is {_shown(wanted)}", owner)


def _shown(kind: onnx.TypeProto.Tensor) -> str:
    sizes = ",".join(
        str(one.dim_value) if one.HasField("dim_value") else one.dim_param or "?" for one in kind.shape.dim
    )
    return f"{TensorProto.DataType.Name(kind.elem_type).lower()}[{sizes}]"
