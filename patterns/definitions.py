"""Operators that a rule builds and ONNX does not have: their functions and schemas, and what the model imports."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

import onnx
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.errors import PatternError
from graft.patterns.infer import Definitions

Definition: TypeAlias = "ir.Function | onnx.FunctionProto | onnx.defs.OpSchema"
"""What a rule may bring: a function, which the model keeps, or a schema."""


def definitions_of(
    rule: str, brought: Sequence[Definition], functions: Mapping[Any, ir.Function], is_model: bool
) -> Definitions:
    """Return what defines operators for a rule, by its name: the model's functions, and what the rule brings.

    Raises PatternError for functions where there is no model to keep them, and for one that the model has otherwise.
    """
    found: dict[tuple[str, str], ir.Function | onnx.defs.OpSchema] = {
        (one.domain, one.name): one for one in functions.values()
    }
    for given in brought:
        one = ir.from_proto(given) if isinstance(given, onnx.FunctionProto) else given
        assert isinstance(one, ir.Function | onnx.defs.OpSchema)
        known = found.get((one.domain, one.name))
        if isinstance(one, ir.Function) and not is_model:
            raise PatternError(
                f"rule '{rule}' brings function '{one.domain}.{one.name}', which a model keeps; call "
                "rewrite(model, rules) with the model, not its graph",
                rule=rule,
            )
        if known is not None and not _same(known, one):
            raise PatternError(
                f"rule '{rule}' brings '{one.domain}.{one.name}', which the model has as another function; give "
                "it another name",
                rule=rule,
            )
        found[one.domain, one.name] = known or one
    return found


def _same(known: ir.Function | onnx.defs.OpSchema, given: ir.Function | onnx.defs.OpSchema) -> bool:
    if not isinstance(known, ir.Function) or not isinstance(given, ir.Function):
        return known is given
    return bool(ir.serde.serialize_function(known) == ir.serde.serialize_function(given))


def keep(definitions: Definitions, functions: MutableMapping[Any, ir.Function]) -> None:
    """Let a model keep the functions of a rule that was applied."""
    for one in definitions.values():
        if isinstance(one, ir.Function):
            functions.setdefault(one.identifier(), one)


def import_domains(top: ir.Graph, nodes: Sequence[ir.Node], definitions: Definitions) -> None:
    """Let a graph import the domains of new nodes; raise PatternError for one that it imports in another version."""
    for node in nodes:
        known = top.opset_imports.get(node.domain)
        if known is None:
            top.opset_imports[node.domain] = node.version or _version(node, definitions)
        elif node.version not in (None, known):
            raise PatternError(
                f"{NodeView(node).where} is of version {node.version} of domain '{node.domain}', of which the model "
                f"imports {known}; build the node of that version",
                node=node.name,
            )


def _version(node: ir.Node, definitions: Definitions) -> int:
    defined = definitions.get((node.domain, node.op_type))
    if isinstance(defined, onnx.defs.OpSchema):
        return int(defined.since_version)
    if defined is None and onnx.defs.has(node.op_type, node.domain):
        return int(onnx.defs.get_schema(node.op_type, domain=node.domain).since_version)
    return 1
