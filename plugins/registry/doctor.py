"""An examination of the installed plugins: what `graft backends doctor` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.errors import GraftError, PatternError, PluginError
from graft.plugins.backend import Backend
from graft.plugins.json_backend import JsonBackend
from graft.plugins.registry.fence import FencedBackend, fence, trace_of
from graft.runtime.foreign import one_line
from graft.runtime.isolation.sandbox import why_not

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from graft.core.graph.view import NodeView
    from graft.patterns.composite import Composite
    from graft.plugins.registry.manager import Plugin, PluginManager

STAGES = ("import", "before-partition")
PROBES = ("Relu", "Add", "MatMul")
"""The operators that every backend is asked about, besides those of images and those that its rules name."""
IMAGES = frozenset({Trait.CONVOLUTION, Trait.POOLING})

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a plugin, or worth knowing; ``trace`` is the traceback behind it, as text."""

    plugin: str
    severity: Severity
    text: str
    trace: str = ""


def examine(manager: PluginManager) -> list[Finding]:
    """Load all plugins, ask them and their backends everything, and return what was found, in order of plugins.

    An error keeps a plugin or a backend from working, a warning is tolerated, a note says why a sound backend cannot
    run here, or why no plugin can be isolated in a sandbox.
    """
    reason = why_not()
    text = f"no plugin can be isolated in a sandbox: {reason}; isolation guards against faults, not against malice"
    own = [Finding("", "note", text)] if reason else []
    return [finding for plugin in manager.plugins() for finding in _findings(manager, plugin)] + own


def _findings(manager: PluginManager, plugin: Plugin) -> Iterator[Finding]:
    if plugin.disabled:
        yield Finding(plugin.name, "note", f"plugin '{plugin.name}' is disabled")
    if plugin.failure is not None:
        yield Finding(plugin.name, "error", plugin.failure.message, plugin.trace)
        return
    yield from (Finding(plugin.name, "note", text) for text in plugin.deprecated)
    for backend in plugin.backends:
        yield from (_error(plugin, error) for error in _faults(backend))
        yield from (Finding(plugin.name, "warning", text) for text in (*backend.remarks, *_shadowed(backend)))
        reason = _unavailable(backend)
        if reason:
            yield Finding(plugin.name, "note", f"backend '{backend.name}' cannot run here: {one_line(reason)}")
        for text in _missing(backend):
            yield Finding(
                plugin.name, "note", f"backend '{backend.name}' compiles, but lacks something here: {one_line(text)}"
            )
    yield from (_error(plugin, error) for error in _raised(_hook_questions(manager, plugin)))


def _error(plugin: Plugin, error: GraftError) -> Finding:
    return Finding(plugin.name, "error", one_line(error.message), trace_of(error.__cause__))


def _raised(questions: Iterable[Callable[[], object]]) -> Iterator[GraftError]:
    """Ask questions and give the errors that are the answers, each once."""
    reported = set()
    for question in questions:
        try:
            question()
        except GraftError as error:
            if error.message not in reported:
                reported.add(error.message)
                yield error


def _faults(backend: FencedBackend) -> Iterator[GraftError]:
    """Ask everything that the core asks before it compiles; give what the backend raised, or gave wrongly."""
    questions: list[Callable[[], object]] = [
        partial(_require_methods, backend),
        backend.available,
        backend.lacks,
        backend.version,
        backend.fingerprint,
        lambda: backend.patterns,
        partial(_require_distinct_rows, backend),
    ]
    questions += [partial(_try_row, backend, row) for row in _rows(backend)]
    questions += [partial(backend.supports, node) for node in _nodes(backend)]
    return _raised(questions)


def _require_methods(backend: FencedBackend) -> None:
    """Raise PluginError if a backend lacks the one method that its kind of backend needs."""
    with fence(backend.plugin, f"the class of backend '{backend.name}'"):
        kind = type(backend.backend)
        bare = kind.compile is Backend.compile
        silent = issubclass(kind, JsonBackend) and kind.compile is JsonBackend.compile and kind.load is JsonBackend.load
    if bare or silent:
        missing = "compile(region, options)" if bare else "load(graph, constants)"
        raise PluginError(f"backend '{backend.name}' does not define {missing}", plugin=backend.plugin)


def _rows(backend: FencedBackend) -> Sequence[Composite]:
    try:
        return backend.patterns
    except GraftError:
        return ()  # already among the faults


def _require_distinct_rows(backend: FencedBackend) -> None:
    for name, count in Counter(row.name for row in _rows(backend)).items():
        if count > 1:
            raise PatternError(
                f"backend '{backend.name}': {count} composites are called '{name}'; give each its own name",
                plugin=backend.plugin,
                composite=name,
            )


def _shadowed(backend: FencedBackend) -> Sequence[str]:
    """Say which rows of a table never form, for an earlier one takes their matches."""
    from graft.patterns.checks.tables import shadow_text, shadowed

    rows = _rows(backend)
    with fence(backend.plugin, f"the table of backend '{backend.name}'"):
        return [shadow_text(backend.name, row, earlier) for row, earlier in shadowed(rows)]


def _try_row(backend: FencedBackend, row: Composite) -> None:
    """Check a pattern as partitioning does, and look for it in every probe: its constraints run, and may raise."""
    from graft.patterns.checks.tables import require_row
    from graft.patterns.matcher import Matcher

    with fence(backend.plugin, f"composite '{row.name}' of backend '{backend.name}'"):
        try:
            require_row(row.pattern)
            for probe in _nodes(backend):
                for match in Matcher().matches(row.pattern, probe.node):
                    if row.check is not None:
                        row.check(match)
        except PatternError as error:
            message = f"composite '{row.name}' of backend '{backend.name}': {error.message}"
            raise PatternError(message, plugin=backend.plugin, composite=row.name) from error


def _hook_questions(manager: PluginManager, plugin: Plugin) -> Iterator[Callable[[], object]]:
    """Give what the hooks are asked for while a model is compiled and loaded; each pass runs on a small model."""
    yield partial(manager.module_loaders, {plugin.name})
    for stage in STAGES:
        yield partial(_try_passes, manager, plugin, stage)


def _try_passes(manager: PluginManager, plugin: Plugin, stage: str) -> None:
    import onnx_ir

    for one in manager.passes_of(plugin.name, stage):
        one.attempt(onnx_ir.from_proto(_probe_model("Relu")))


def _unavailable(backend: FencedBackend) -> str | None:
    try:
        return backend.available()
    except GraftError:
        return None  # already among the faults


def _missing(backend: FencedBackend) -> Sequence[str]:
    try:
        return tuple(filter(None, (backend.device_fault(), *backend.lacks())))
    except GraftError:
        return ()  # already among the faults


def _nodes(backend: FencedBackend) -> Iterator[NodeView]:
    """Give a float32 node of each probed operator, of static shapes; those that need attributes are passed over."""
    import onnx

    from graft.core.graph.view import NodeView

    named = (rule.what for rule in backend.rules if rule.is_operator)
    images = (row.name for row in OPERATORS if IMAGES & row.traits)
    for operator in dict.fromkeys((*PROBES, *images, *named)):
        try:
            if any(attribute.required for attribute in onnx.defs.get_schema(operator).attributes.values()):
                continue
            yield NodeView(_probe(operator))
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, onnx.defs.SchemaError):
            continue


def _probe(operator: str) -> ir.Node:
    import onnx_ir

    return next(iter(onnx_ir.from_proto(_probe_model(operator)).graph))


def _probe_model(operator: str) -> onnx.ModelProto:
    """Return a model of one float32 operator, with the fewest inputs and outputs that it may have."""
    import onnx
    from onnx import TensorProto, helper

    schema = onnx.defs.get_schema(operator)
    row = OPERATORS.get(operator)
    shape = (2,) * (4 if row is not None and IMAGES & row.traits else 2)
    names = [f"x{index}" for index in range(schema.min_input)]
    outputs = [f"y{index}" for index in range(schema.min_output)]
    node = helper.make_node(operator, names, outputs, name=f"probe_{operator}")
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]
    graph = helper.make_graph([node], "probe", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", schema.since_version)])
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)
