"""An examination of the installed plugins: what `graft backends doctor` says."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from graft.errors import GraftError
from graft.plugins.backend import Backend
from graft.plugins.fence import FencedBackend
from graft.plugins.json_backend import JsonBackend

if TYPE_CHECKING:
    import onnx_ir as ir

    from graft.core.view import NodeView
    from graft.plugins.manager import Plugin, PluginManager

PROBES = ("Relu", "Add", "MatMul", "Conv")
"""The operators that every backend is asked about, besides those that its rules name."""

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a plugin, or worth knowing; ``trace`` is the traceback behind it, as text."""

    plugin: str
    severity: Severity
    text: str
    trace: str = ""


def examine(manager: PluginManager) -> list[Finding]:
    """Load all plugins, ask their backends about a few operators, and return what was found, in order of plugins.

    An error keeps a plugin or a backend from working, a warning is tolerated, a note says why a sound backend cannot
    run here.
    """
    return [finding for plugin in manager.plugins() for finding in _findings(plugin)]


def _findings(plugin: Plugin) -> Iterator[Finding]:
    if plugin.disabled:
        yield Finding(plugin.name, "note", f"plugin '{plugin.name}' is disabled")
    if plugin.failure is not None:
        yield Finding(plugin.name, "error", plugin.failure.message, plugin.trace)
    for backend in plugin.backends:
        yield from (Finding(plugin.name, "error", text) for text in _faults(backend))
        yield from (Finding(plugin.name, "warning", text) for text in (*_rule_mistakes(backend), *backend.remarks))
        reason = _unavailable(backend)
        if reason:
            yield Finding(plugin.name, "note", f"backend '{backend.name}' cannot run here: {reason}")


def _faults(backend: FencedBackend) -> Iterator[str]:
    """Ask everything that the core asks before it compiles; give what the backend raised."""
    kind = type(backend.backend)
    if kind.compile is Backend.compile:
        yield f"backend '{backend.name}' does not define compile(region, options)"
    if issubclass(kind, JsonBackend) and kind.compile is JsonBackend.compile and kind.load is JsonBackend.load:
        yield f"backend '{backend.name}' does not define load(graph, constants)"
    questions: list[Callable[[], object]] = [backend.available, backend.version, backend.fingerprint]
    questions += [lambda: backend.patterns, *(partial(backend.supports, node) for node in _nodes(backend))]
    for question in questions:
        try:
            question()
        except GraftError as error:
            yield error.message


def _unavailable(backend: FencedBackend) -> str | None:
    try:
        return backend.available()
    except GraftError:
        return None  # already among the faults


def _rule_mistakes(backend: FencedBackend) -> Iterator[str]:
    import onnx

    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    for rule in backend.backend.rules:
        if rule.is_operator and "::" not in rule.what and rule.what not in known:
            nearest = difflib.get_close_matches(rule.what, known, 1)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else "; write domain::Name for other domains"
            yield f"backend '{backend.name}': '{rule.what}' of '{rule.method}' is not an ONNX operator{hint}"
    try:
        names = Counter(composite.name for composite in backend.patterns)
    except GraftError:
        return  # already among the faults
    for name, count in names.items():
        if count > 1:
            yield f"backend '{backend.name}': {count} composites are called '{name}'; give each its own name"


def _nodes(backend: FencedBackend) -> Iterator[NodeView]:
    """Give a float32 node of each probed operator, of static shapes; those that need attributes are passed over."""
    import onnx

    from graft.core.view import NodeView

    named = (rule.what for rule in backend.backend.rules if rule.is_operator)
    for operator in dict.fromkeys((*PROBES, *named)):
        try:
            yield NodeView(_probe(operator))
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, onnx.defs.SchemaError):
            continue


def _probe(operator: str) -> ir.Node:
    import onnx
    import onnx_ir
    from onnx import TensorProto, helper

    schema = onnx.defs.get_schema(operator)
    shape = (2,) * (4 if operator == "Conv" else 2)
    names = [f"x{index}" for index in range(schema.min_input)]
    outputs = [f"y{index}" for index in range(schema.min_output)]
    node = helper.make_node(operator, names, outputs, name=f"probe_{operator}")
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]
    graph = helper.make_graph([node], "probe", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", schema.since_version)])
    return next(iter(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(model, strict_mode=True)).graph))
