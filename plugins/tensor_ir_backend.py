"""The base class of backends that generate code from the tensor IR: a region in, `emit` its scheduled functions."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from graft.core.backend_spec import backend_text
from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.machine import Machine
from graft.core.machine.target import CompileOptions, Precision, Target, host_target
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import varying
from graft.core.operators.definition.table import Cost, OperatorTable
from graft.core.passes.gather_patches import NAME as PATCHES
from graft.core.passes.gather_patches import gather_patches, small_convolutions
from graft.core.reject import Reject
from graft.core.types import FLOATS, INTEGERS, is_custom
from graft.errors import CompileError, TuningError
from graft.partition.region import Region
from graft.plugins.backend import Backend, CompiledRegion
from graft.plugins.codegen.choices import CodegenChoices
from graft.plugins.codegen.moved_images import with_images_moved
from graft.plugins.codegen.quantized_regions import in_integers, widens_eighths
from graft.plugins.codegen.region_code import CollectedFunctions, RegionCode
from graft.plugins.codegen.region_cost import region_costs
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.codegen.region_kernels import RegionKernels
from graft.plugins.codegen.region_models import model_of, region_of
from graft.plugins.codegen.wide_floats import in_float32, precision_of
from graft.plugins.options.values import changed
from graft.runtime.procedure import Device

if TYPE_CHECKING:
    from graft.core.schedule.parameters import Parameters
    from graft.core.tensor_ir.ir import Function
    from graft.core.tuning.options import TuneOptions, TuneReport
    from graft.core.tuning.tunings import Tunings
    from graft.runtime.procedure import Call, Module

DTYPES = FLOATS | INTEGERS | {"bool"}
"""The element types that generated code handles."""


class TensorIrBackend(CodegenChoices, Backend):
    """A backend for one machine: whatever has a lowering is fused, scheduled and handed to `emit`.

    A subclass writes `emit`, says ``shapes = "static"`` where that cannot say extents that are variables, and overrides
    `supports` where it cannot say what operators are lowered to: by their names, for a trait has more of them. It
    writes `machine` where it generates code for another one than the user's target. Where its machine wants other
    decisions than Graft's, it overrides those of `CodegenChoices`; where it computes an operator in another way, its
    plugin gives a row of the operator table with its name (`graft_operators`). Custom datatypes are lowered to ordinary
    operations before.
    """

    fuses: ClassVar[bool] = True
    precisions: ClassVar[Collection[Precision]] = ("float32", "bf16")
    """What products may be computed in; with any other they are in float32."""

    # ---- What a subclass writes ----

    def emit(self, functions: Sequence[Function], target: Target) -> Module:
        """Return a module with these functions, each by its name and with the ABI of GraftFunction.

        A buffer may have another shape than its tensor, axes joined: its elements are one row, and an access is at the
        place that the buffer's own shape says. Raises CompileError for a node of the tensor IR that the language cannot
        say. Name and plugin are filled in.
        """
        raise TypeError(f"backend '{self.name}' does not define emit(functions, target)")

    # ---- What it may override ----

    def machine(self, target: Target) -> Target:
        """Return the machine that code is generated for, given the user's target with its threads and switches."""
        return target

    def generates_code(self, machine: Machine) -> bool | str:
        """Return whether the machine is its own; asked for another, it is like a library that is called from there."""
        return self.machine(Target(machine)).machine == machine

    @classmethod
    def sources(cls) -> Path | None:
        """Return the package, or else the file, of the class: what is kept of its code goes when that changes."""
        module = sys.modules[cls.__module__]
        path = None if module.__file__ is None else Path(module.__file__)
        return path.parent if path is not None and module.__package__ else path

    @property
    def opens_extents(self) -> bool:
        """Whether `emit` can say extents that are variables."""
        return self.shapes == "symbolic"

    def region_code(self, target: Target, options: CompileOptions) -> RegionCode:
        """Return what takes a region's functions: here they are collected for one call of `emit`.

        `graft.plugins.codegen.kernel_objects` compiles and keeps each by itself, beside the scheduling of the next.
        """
        return CollectedFunctions(lambda functions: self.emit(functions, target))

    # ---- What follows ----

    def fingerprint(self) -> str:
        """Return what generated code depends on besides the region."""
        return self.version()

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True for a node with a lowering of its shapes and numeric tensors, else the first reason.

        Constants of 8-bit floats that are only widened are constants of a wider type before anything is lowered.
        """
        if widens_eighths(node):
            return True
        operator = self._table.of(node)
        if operator is None or operator.lower is None:
            near = self._table.nearest(node.op_type) if operator is None and node.domain else None
            hint = f"; the nearest is {near}" if near else ""
            return Reject("no-pattern", f"the operator table has no lowering of {node.op_type}{hint}")
        for value in (*node.inputs, *node.outputs):
            if value is not None and value.name and (refused := self._refused(value)) is not None:
                return refused
        refused = varying.refused(node, self._table)
        if refused is None and operator.accepts is not None:
            refused = operator.accepts(node)
        return True if refused is None else refused

    def rounded(self, region: Region, target: Target) -> Collection[str]:
        """Return the names of the nodes whose products are in bfloat16."""
        target = self._machine(target, target.threads)
        if target.precision == "float32":
            return ()
        region = with_images_moved(in_integers(region, target.without), self._table, target, self)
        return RegionGroups(region, self._table, target, self).rounded()

    def compile(self, region: Region, options: CompileOptions) -> CompiledRegion:
        """Compile a region into one module with a function per kernel, and the calls of them.

        Raises CompileError for a machine that no code is generated for.
        """
        machine = options.target.machine
        if isinstance(reason := self.generates_code(machine), str):
            raise CompileError(f"{self.name} does not compile for '{machine.name}': {reason}", target=machine.name)
        target = self._machine(options.target, options.threads)
        region, target = self._rewritten(region, target)
        if self.device != "cpu":
            region = replace(region, caches={})  # only in main memory are rows put behind others
        with self.region_code(target, options) as code:
            kernels = RegionKernels(
                region, self._table, target, code, self._tuned(target, options), self, schedules=options.schedules
            )
            procedure = kernels.procedure()
            module = code.module(_origins(procedure.calls))
        modules: tuple[Module, ...] = ()
        if module is not None:
            modules = (replace(module, name=region.name, plugin=module.plugin or self.name),)
        seconds = {**kernels.seconds, **{stage: spent for stage, spent in code.seconds.items() if spent}}
        return CompiledRegion(modules, procedure, kernels.constants, seconds, kernels.groups.copied)

    def cost(self, region: Region) -> Sequence[Cost]:
        """Return one cost for each kernel."""
        return region_costs(region, self._table, (), self.fusion)

    def tune(self, regions: Sequence[Region], options: CompileOptions, wish: TuneOptions) -> TuneReport | None:
        """Measure candidates for the parameters of the regions' schedules; raise TuningError for another processor."""
        from graft.plugins.codegen.kernel_tuning import KernelBuilder, tune_regions

        target = self._machine(options.target, options.threads)
        wanted, own = options.target.machine, host_target().machine
        if wanted != own and wish.device is None:
            raise TuningError(
                f"tuning measures on this machine, a {own.cpu}, not on a {wanted.name}; tune for target 'native', or "
                "on a device (TuneOptions.device)",
                target=wanted.name,
            )
        if options.tuned is None:
            raise TuningError(
                "tuning needs a database to keep what it finds in; leave tuned on, with a cache directory of your own"
            )
        regions = [self._rewritten(region, target)[0] for region in regions]
        emit = partial(self.emit, target=target)
        beside = None if self.device == "cpu" else Device(self.device, getattr(self, "plugin", self.name), self.install)
        builder = KernelBuilder(target, options.threads, emit, self, device=wish.device, memory=beside)
        return tune_regions(regions, self._table, builder, self._tunings(target, options.tuned), wish)

    def _rewritten(self, region: Region, target: Target) -> tuple[Region, Target]:
        """Return a region in the arithmetic that it is computed in, and its target."""
        region = in_integers(region, target.without)
        if target.machine.is_device:  # whose products take 16-bit floats as they are
            return region, target
        own = precision_of(region, target, self._table) if "bf16" in self.precisions else target
        region = in_float32(region, target, self._table)
        small = [] if PATCHES in target.without else small_convolutions(region.function, target.machine)
        if small:
            model = model_of(region)
            gather_patches(model, small)
            region = region_of(region, model)
        return with_images_moved(region, self._table, own, self), own

    @property
    def _table(self) -> OperatorTable:
        """The operators, with this backend's own lowerings of them."""
        return OPERATORS.for_backend(self.name)

    def _machine(self, target: Target, threads: int) -> Target:
        precision: Precision = target.precision if target.precision in self.precisions else "float32"
        return self.machine(replace(target, threads=threads, precision=precision))

    def _tunings(self, target: Target, path: Path) -> Tunings:
        from graft.core.tuning.tunings import Tunings, machine_of
        from graft.plugins.codegen.kernel_cache import source_digest

        options = changed(self.option_rows(), self.option_values())
        version = backend_text(f"{self.version()} {source_digest(self.sources())[:16]}", options)
        return Tunings(path, machine_of(target, target.threads), version)

    def _tuned(self, target: Target, options: CompileOptions) -> Mapping[str, Parameters]:
        """What tuning has found, by workload."""
        if options.tuned is None:
            return {}
        known = self._tunings(target, options.tuned).known()
        return {key: tuning.parameters for key, tuning in known.items() if tuning.parameters is not None}

    def _refused(self, value: ValueView) -> Reject | None:
        if value.dtype not in DTYPES and not is_custom(value.dtype):
            kind = value.dtype or "of unknown type"
            return Reject("dtype", f"'{value.name}' is {kind}; {self.name} computes numbers and bool")
        return None


def _origins(calls: Sequence[Call]) -> Mapping[str, Sequence[str]]:
    """Return the nodes that each function computes, in the order of its calls."""
    origins: dict[str, dict[str, None]] = {}
    for call in calls:
        origins.setdefault(call.function, {}).update(dict.fromkeys(call.origin))
    return {function: tuple(nodes) for function, nodes in origins.items()}
