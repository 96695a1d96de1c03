"""The hook specifications: everything by which a plugin hands objects to Graft.

Hooks hand over objects; the objects do the work. A plugin implements any of them as functions marked with `hookimpl`
and names its module in an entry point of group ``graft``. A plugin that is only a backend needs no hook at all: its
entry point may name the `Backend` class, or a module that defines it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from graft.core.machine.machine import Machine
    from graft.partition.region import Region
    from graft.plugins.backend import Backend, CompiledRegion
    from graft.runtime.procedure import Module

PROJECT = "graft"
"""The pluggy project name and the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def graft_backends() -> Iterable[Backend | type[Backend]]:  # type: ignore[empty-body]
    """Return the backends of this plugin, as classes or instances.

    >>> from graft.plugins.backend import Backend
    >>> from graft.plugins.hooks import hookimpl
    >>> class Npu(Backend):
    ...     name = "npu"
    >>> @hookimpl
    ... def graft_backends():
    ...     return [Npu]
    """


@hookspec
def graft_cost_tables() -> Iterable[Any]:  # type: ignore[empty-body]
    """Return tables of what number formats cost in hardware: `CostTable` objects, for `graft datatypes sweep --costs`.

    >>> from graft.plugins.hooks import hookimpl
    >>> @hookimpl
    ... def graft_cost_tables():
    ...     from graft.measure.hardware_cost import CostTable
    ...     return [CostTable("npu", "our synthesis", {"posit16": (0.9, 1500)}, {"posit16": (0.4, 800)}, read=0.3)]
    """


@hookspec
def graft_datatypes() -> Iterable[Any]:  # type: ignore[empty-body]
    """Return the custom datatypes of this plugin: `Datatype` objects, which bring formats and lowerings.

    >>> from graft.plugins.hooks import hookimpl
    >>> @hookimpl
    ... def graft_datatypes():
    ...     from graft.datatypes.posit import Posit
    ...     from graft.datatypes.registry import Datatype
    ...     return [Datatype("posit24", formats=lambda bits: Posit(24), widths=(24,))]
    """


@hookspec
def graft_operators() -> Iterable[Any]:  # type: ignore[empty-body]
    """Return rows for the operator table: `Operator` definitions in the plugin's own domain, each with its schema.

    A model that uses them loads; with ``lower`` every backend that generates code compiles them. A row with a
    ``backend`` is that backend's own lowering of an operator of any domain, before the one for all:
    ``replace(OPERATORS.get("Gelu"), lower=..., backend="npu")``. A rule of ``shapes`` says shapes, of
    numbers and of expressions; the schema's inference function need say no more than the type, and what it says of
    shapes must agree.

    >>> import onnx
    >>> from graft.core.operators.definition.table import Operator, Trait
    >>> from graft.plugins.hooks import hookimpl
    >>> @hookimpl
    ... def graft_operators():
    ...     schema = onnx.defs.OpSchema("FastGelu", "com.example", 1, inputs=[...], outputs=[...])
    ...     return [Operator("FastGelu", frozenset({Trait.ELEMENTWISE}), domain="com.example", schema=schema)]
    """


@hookspec
def graft_machines() -> Iterable[Machine]:  # type: ignore[empty-body]
    """Return rows of the table of machines: what may be compiled for, by `graft compile --target NAME`.

    A row needs a backend that generates code for its architecture; schedules read all they know of it there.

    >>> from graft.core.machine.machine import KIB, Machine, Memory
    >>> from graft.plugins.hooks import hookimpl
    >>> @hookimpl
    ... def graft_machines():
    ...     memories = (Memory("l1", 32 * KIB, is_cache=True), Memory("scratch", seen_by="thread"), Memory("host"))
    ...     return [Machine("cortex-a53", "aarch64", "cortex-a53", vectors=(128,), registers=32, memories=memories)]
    """


@hookspec
def graft_module_loaders() -> Iterable[Any]:  # type: ignore[empty-body]
    """Return the loaders of the module kinds that this plugin's backends produce.

    Called where a program is loaded, so it must need neither onnx nor a compiler. A loader has a ``kind`` and either
    the path of a shared library (`NativeLoader`) or a Python function (`PythonLoader`) of `graft.runtime.loaders`.

    >>> from graft.plugins.hooks import hookimpl
    >>> @hookimpl
    ... def graft_module_loaders():
    ...     from graft.runtime.loaders import PythonLoader
    ...     return [PythonLoader("twice", lambda name, data, constants: {name: lambda inputs: [2 * inputs[0]]})]
    """


@hookspec
def graft_passes(stage: str) -> Iterable[Any]:  # type: ignore[empty-body]
    """Return the graph passes that this plugin adds at a stage: ``"import"`` or ``"before-partition"``.

    A pass has a ``name`` of its own and ``run(model) -> bool``, which changes the model in place and says whether it
    did; it is run until nothing changes. Those of ``import`` take their turns with the standard passes, those of
    ``before-partition`` see the simplified model. What a pass leaves must be valid ONNX.

    >>> from graft.plugins.hooks import hookimpl
    >>> class PadChannels:
    ...     name = "pad-channels"
    ...     def run(self, model):
    ...         return False
    >>> @hookimpl
    ... def graft_passes(stage):
    ...     return [PadChannels()] if stage == "before-partition" else []
    """


@hookspec
def graft_region_compiled(region: Region, module: Module | CompiledRegion, seconds: float) -> None:
    """Hear that a region was compiled: for logs, caches and statistics.

    >>> from graft.plugins.hooks import hookimpl
    >>> @hookimpl
    ... def graft_region_compiled(region, seconds):
    ...     print(f"{region.name} took {seconds:.3f} s")
    """


@hookspec
def graft_report_sections(report: Any) -> Sequence[tuple[str, str]]:  # type: ignore[empty-body]
    """Return sections, as (title, HTML), that this plugin adds to a report.

    >>> from graft.plugins.hooks import hookimpl
    >>> @hookimpl
    ... def graft_report_sections(report):
    ...     return [("NPU occupancy", "<p>87 %</p>")]
    """


@hookspec
def graft_torch_operators() -> Iterable[tuple[str, Any]]:  # type: ignore[empty-body]
    """Return rows of operators of PyTorch's: pairs of a qualified name and the function that writes it as ONNX.

    A row takes a `graft.torch.aten.builder.Builder`, the fake result, which has its type and shape, and the operator's
    arguments, of which tensors are the builder's; it returns a tensor, or a list of them. What it refuses
    (`graft.torch.aten.builder.require`) stays in PyTorch. Nodes may be of the plugin's own domain (`graft_operators`).

    >>> from graft.plugins.hooks import hookimpl
    >>> @hookimpl
    ... def graft_torch_operators():
    ...     return [("acme::gate", lambda b, out, x, gate: b.op("Mul", x, b.op("Sigmoid", gate)))]
    """
