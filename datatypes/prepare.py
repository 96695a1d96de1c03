"""The preparation of a kernel for its schedule: where numbers are decoded, and how sums are accumulated.

Between load and store, values of a custom type with a `Format` become its decoded type: constants at compile time,
intermediate results never get encoded. Sums follow the accumulation policy of their node:

- ``"each"``: every product and every sum is rounded, in the order of the reduction's axes (channels last in a
  convolution);
- a type, custom or not: products and sums in that type, in the same order, rounded to the value's own at the end;
- ``"quire"``: exact, rounded once at the end (`graft.datatypes.quire`).

A plain float sum within such a node (the statistics of a normalisation) takes its terms in order, too: it becomes one
of `graft.datatypes.native_float`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graft.core.graph.view import NodeView
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import stage_expressions
from graft.core.schedule.strategies.nests.generic_nest import with_epilogue
from graft.core.tensor_ir.anchors import Window
from graft.core.tensor_ir.ir import (
    Binary,
    Bitcast,
    Buffer,
    Cast,
    Constant,
    Expression,
    Intrinsic,
    Load,
    Reduction,
    Stage,
    Variable,
)
from graft.core.tensor_ir.ordered_stages import map_order, uses_of
from graft.core.tensor_ir.visit import children, loads, substitute, unknown, with_children
from graft.core.types import CUSTOM_DOMAIN, Type, is_custom
from graft.datatypes.compute_type import converted, decoded, encoded, format_of
from graft.datatypes.formats import Format
from graft.datatypes.native_float import FUSED, ORDERED
from graft.datatypes.quire import quire_stages
from graft.datatypes.registry import DatatypeRegistry
from graft.datatypes.shipped import DATATYPES

EACH = "each"
QUIRE = "quire"


@dataclass(slots=True)
class Prepared:
    """A kernel for the schedule; ``made`` are constants that take the place of inputs, ``sources`` those inputs."""

    kernel: Kernel
    made: dict[Buffer, np.ndarray] = field(default_factory=dict)
    sources: dict[Buffer, Buffer] = field(default_factory=dict)


def prepare(
    kernel: Kernel, policies: Mapping[str, str] | None = None, registry: DatatypeRegistry = DATATYPES
) -> Prepared:
    """Return the kernel with custom types decoded; ``policies`` gives the accumulation of converted nodes by name."""
    buffers = {load.buffer for stage in kernel.stages for load in loads(*stage_expressions(stage))}
    buffers |= {stage.buffer for stage in kernel.stages}
    if not any(is_custom(buffer.dtype) for buffer in buffers):
        return Prepared(kernel)
    kernel = _with_biases(kernel, policies or {})
    preparation = _Preparation(kernel, policies or {}, registry)
    stages: list[Stage] = []
    anchor = 0
    for number, stage in enumerate(kernel.stages):
        stages += preparation.stage(stage)
        if number == kernel.anchor_stage:
            anchor = max(
                (place for place, one in enumerate(stages) if one.reduction is not None), default=len(stages) - 1
            )
    used = {load.buffer for stage in stages for load in loads(*stage_expressions(stage))}
    sources = {new: old for old, new in preparation.decoded_constants.items()}
    sources |= {wide: sources[narrow] for wide, narrow in preparation.wide_constants.items()}
    inputs = [
        buffer
        for old in kernel.inputs
        for buffer in (old, *(new for new, source in sources.items() if source is old))
        if buffer in used
    ]
    made = {buffer: preparation.made[buffer] for buffer in inputs if buffer in sources}
    constants = {buffer: array for buffer, array in kernel.constants.items() if buffer in inputs} | made
    changed = replace(kernel, stages=tuple(stages), inputs=tuple(inputs), constants=constants, anchor_stage=anchor)
    return Prepared(changed, made, sources)


def _with_biases(kernel: Kernel, policies: Mapping[str, str]) -> Kernel:
    """Join the sum of a node that has a quire with what the node itself adds to it, so that it is rounded once."""
    if QUIRE not in policies.values():
        return kernel
    stages, anchor = list(kernel.stages), kernel.stages[kernel.anchor_stage]
    for stage in kernel.stages:
        if stage.reduction is None or QUIRE not in (policies.get(name) for name in stage.origin):
            continue
        readers = [other for other in stages if uses_of(stage.buffer, [other])]
        if len(readers) != 1 or stage.buffer in kernel.outputs or not set(readers[0].origin) <= set(stage.origin):
            continue
        joined = with_epilogue(stage, readers[0])
        if joined is not None:
            anchor = joined if anchor in (stage, readers[0]) else anchor
            stages[stages.index(readers[0])] = joined
            stages.remove(stage)
    return replace(kernel, stages=tuple(stages), anchor_stage=stages.index(anchor))


@dataclass(slots=True)
class _Preparation:
    kernel: Kernel
    policies: Mapping[str, str]
    registry: DatatypeRegistry
    decoded_constants: dict[Buffer, Buffer] = field(default_factory=dict)
    made: dict[Buffer, np.ndarray] = field(default_factory=dict)
    wide_constants: dict[Buffer, Buffer] = field(default_factory=dict)
    """Constants in an accumulator's type, and the decoded ones that they were made of."""
    _buffers: dict[Buffer, Buffer] = field(default_factory=dict)
    _variables: dict[Variable, Variable] = field(default_factory=dict)
    _known: dict[int, tuple[Expression, Expression]] = field(default_factory=dict)
    _intermediate: set[Buffer] = field(init=False)
    """The buffers that hold decoded numbers."""

    def __post_init__(self) -> None:
        stored = {stage.buffer for stage in self.kernel.stages} - set(self.kernel.outputs)
        self._intermediate = {buffer for buffer in stored if self.decoded(buffer.dtype) != buffer.dtype}

    def format(self, dtype: str) -> Format | None:
        return self.registry.format(dtype) if is_custom(dtype) else None

    def decoded(self, dtype: str) -> str:
        """Return the type in which a kernel computes with ``dtype``."""
        format = self.format(dtype)
        return dtype if format is None else decoded(dtype, format)

    # ---- Stages ----

    def stage(self, stage: Stage) -> list[Stage]:
        """Return the stage, or the stages, without arithmetic on encoded types."""
        policy = next((self.policies[name] for name in stage.origin if name in self.policies), None)
        new, value, reduction = self._target(stage.buffer), self.expression(stage.value), stage.reduction
        if reduction is None:
            order = map_order(stage.order, lambda part: self._ordered(part, new.dtype))
            return [replace(stage, buffer=new, value=converted(value, new.dtype), order=order)]
        structure = stage.structure
        if isinstance(structure, Window) and policy != QUIRE:
            first, *window = reduction.axes
            reduction = Reduction(reduction.operator, (*window, first), reduction.initial)
            structure = replace(structure, reduced=(*structure.reduced[1:], structure.reduced[0]))
        total = Variable("total", value.type)
        result: Expression = total
        if stage.epilogue is not None:
            assert stage.epilogue_variable is not None, "an epilogue without variable"
            self._variables[stage.epilogue_variable] = total
            result = self.expression(stage.epilogue)
        initial = self.expression(reduction.initial)
        prepared = replace(
            stage,
            buffer=new,
            value=value,
            reduction=replace(reduction, initial=initial),
            epilogue_variable=total,
            epilogue=converted(result, new.dtype),
            structure=structure,
        )
        kind = self._accumulator(reduction.operator, value.type.dtype, policy)
        if kind == QUIRE:
            return quire_stages(prepared, self.registry)
        if kind != value.type.dtype:
            prepared = self._wider(prepared, kind)
        if prepared.epilogue is prepared.epilogue_variable:
            prepared = replace(prepared, epilogue=None, epilogue_variable=None)
        return [prepared]

    def _ordered(self, part: Expression, dtype: str) -> Expression:
        """Return an expression of an order: an index, or a value of the stage's type, which is ``dtype`` now."""
        value = self.expression(part)
        return converted(value, dtype) if is_custom(part.type.dtype) else value

    def _accumulator(self, operator: str, dtype: str, policy: str | None) -> str:
        """Return the type in which terms of a type are combined under a policy (None: of an ordinary node)."""
        if policy is not None and operator in ("add", "mul") and not is_custom(dtype):
            return self.decoded(ORDERED.get(dtype, dtype))
        if operator != "add" or not is_custom(dtype) or policy in (None, EACH):
            return dtype
        return QUIRE if policy == QUIRE else self.decoded(ORDERED.get(policy, policy))

    def _target(self, buffer: Buffer) -> Buffer:
        if buffer not in self._intermediate:
            return buffer
        if buffer not in self._buffers:
            self._buffers[buffer] = replace(buffer, dtype=self.decoded(buffer.dtype))
        return self._buffers[buffer]

    def _wider(self, stage: Stage, kind: str) -> Stage:
        """Accumulate products (or other terms) in another type."""
        value, reduction = stage.value, stage.reduction
        assert reduction is not None, "not a reduction"
        if isinstance(value, Binary) and value.operator == "mul":
            kind = self._fused(value.type.dtype, kind)
            term: Expression = Binary("mul", self._widened(value.left, kind), self._widened(value.right, kind))
        else:
            term = converted(value, kind)
        total = Variable("total", term.type)
        assert stage.epilogue is not None, "prepared without epilogue"
        narrow = converted(total, value.type.dtype)
        old = stage.epilogue_variable
        epilogue = _replaced(stage.epilogue, old, narrow)
        start = Reduction(reduction.operator, reduction.axes, converted(reduction.initial, kind))
        return replace(stage, value=term, reduction=start, epilogue_variable=total, epilogue=epilogue)

    def _fused(self, dtype: str, kind: str) -> str:
        """Return the accumulator that fuses products with sums, if those of the decoded type ``dtype`` are exact."""
        format, fused = format_of(self.registry, dtype), FUSED.get(encoded(kind) or "")
        wide = format_of(self.registry, kind)
        if format is None or wide is None or fused is None or not format.has_exact_products(wide.carrier):
            return kind
        return self.decoded(fused)

    def _widened(self, factor: Expression, kind: str) -> Expression:
        """Return a factor in another type; a constant is converted now."""
        format = format_of(self.registry, kind)
        if format is None or not isinstance(factor, Load) or factor.buffer not in self.made:
            return converted(factor, kind)
        wide = replace(factor.buffer, name=f"{factor.buffer.name}_wide", dtype=kind)
        narrow = format_of(self.registry, factor.buffer.dtype)
        assert narrow is not None, factor.buffer.dtype
        numbers = format.to_numbers(format.to_bits(self.made[factor.buffer].view(narrow.carrier).astype(np.float64)))
        self.made[wide] = numbers.astype(format.carrier).view("uint32" if format.carrier == "float32" else "uint64")
        self.wide_constants[wide] = factor.buffer
        return replace(factor, buffer=wide)

    # ---- Expressions ----

    def expression(self, expression: Expression) -> Expression:
        """Return the expression in decoded types."""
        for node in unknown(expression, self._known):
            self._known[id(node)] = (node, self._decode(node))
        return self._known[id(expression)][1]

    def _decode(self, node: Expression) -> Expression:
        if isinstance(node, Variable):
            return self._variables.get(node, node)
        if isinstance(node, Constant):
            return Constant(node.value, Type(self.decoded(node.type.dtype), node.type.lanes))
        operands = tuple(map(self.expression, children(node)))
        match node:
            case Load():
                return self._load(node, operands)
            case Cast(_, dtype):
                return converted(operands[0], self.decoded(dtype))
            case Bitcast(value, dtype):
                bits = converted(operands[0], value.type.dtype)
                return converted(Bitcast(bits, dtype), self.decoded(dtype))
            case Intrinsic(name, _, kind):
                return Intrinsic(name, operands, Type(self.decoded(kind.dtype), kind.lanes))
            case _:
                return with_children(node, operands)

    def _load(self, node: Load, operands: tuple[Expression, ...]) -> Expression:
        rank = len(node.indices)
        mask = operands[rank] if node.mask is not None else None
        buffer = node.buffer
        format = self.format(buffer.dtype)
        if format is None:
            return Load(buffer, operands[:rank], mask)
        kind = decoded(buffer.dtype, format)
        if buffer in self._intermediate:
            return Load(self._target(buffer), operands[:rank], mask)
        if buffer in self.kernel.constants:
            return Load(self._decoded_constant(buffer, kind, format), operands[:rank], mask)
        return converted(Load(buffer, operands[:rank], mask), kind)

    def _decoded_constant(self, buffer: Buffer, kind: str, format: Format) -> Buffer:
        """Decode a constant now; its contents are the carrier's bits."""
        if buffer not in self.decoded_constants:
            new = replace(buffer, name=f"{buffer.name}_decoded", dtype=kind)
            numbers = format.to_numbers(self.kernel.constants[buffer]).astype(format.carrier)
            self.made[new] = numbers.view("uint32" if format.carrier == "float32" else "uint64")
            self.decoded_constants[buffer] = new
        return self.decoded_constants[buffer]


def _replaced(expression: Expression, variable: Variable | None, value: Expression) -> Expression:
    return expression if variable is None else substitute(expression, {variable: value})


def accumulation(nodes: Sequence[NodeView]) -> dict[str, str]:
    """Return the accumulation policy of converted nodes by name: their attribute ``accumulate``, or each operation."""
    converted = [node for node in nodes if node.node.domain == CUSTOM_DOMAIN]
    return {node.name: str(node.attribute("accumulate", EACH)) for node in converted}
