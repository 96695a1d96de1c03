"""Recurrent layers: RNN, LSTM and GRU as scans over the steps.

For each direction there are the projections of the input for all steps at once, one for each gate, and one scan: the
gates at a step, which read the state of the step before, then the new state. Formulas and names are those of the ONNX
operator specification. A row of the batch that has ended keeps its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition import index_bounds
from graft.core.operators.definition.adjoint import through
from graft.core.operators.definition.cost import traffic
from graft.core.operators.definition.table import Cost, Lowering, Trait, define
from graft.core.operators.definition.varying import varying_axis
from graft.core.operators.products import shapes
from graft.core.operators.products.contraction import shape_of
from graft.core.operators.products.plain_recurrence import recurrence
from graft.core.operators.products.recurrent_layer import GATES, NEED_ALPHA, PLAIN, Layer, layer_of
from graft.core.reject import Reject
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import Contraction
from graft.core.types import FLOATS, Type, is_custom


@dataclass(frozen=True, slots=True)
class At:
    """A place in the states of a direction: step (or the one before), row of the batch, hidden unit."""

    step: ir.Expression
    before: ir.Expression
    row: ir.Expression
    unit: ir.Expression

    def of(self, buffer: ir.Buffer) -> ir.Expression:
        """Return what is stored there."""
        return ir.Load(buffer, (self.step, self.row, self.unit))

    def last(self, buffer: ir.Buffer) -> ir.Expression:
        """Return what the step before has stored there."""
        return ir.Load(buffer, (self.before, self.row, self.unit))


Start = Callable[[At], ir.Expression]
Finish = Callable[[ir.Expression, At], ir.Expression]


@dataclass(slots=True)
class _Direction:
    """The stages of one direction; ``hidden`` and ``cell`` hold the states after each step."""

    layer: Layer
    number: int
    lowering: Lowering
    hidden: ir.Buffer = field(init=False)
    cell: ir.Buffer = field(init=False)
    step: ir.Variable = field(init=False)
    stages: list[ir.Stage] = field(default_factory=list)
    _rows: list[ir.Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hidden, self.step = self._temporary(), ir.Variable("step")
        self.cell = self._temporary() if self.layer.kind == "LSTM" else self.hidden
        late = self.layer.kind == "GRU" and self.layer.linear_before_reset
        self._rows = [self._projected(gate, late and gate == 2) for gate in range(self.layer.gates)]
        {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.layer.kind]()

    def _temporary(self) -> ir.Buffer:
        return self.lowering.temporary(self.layer.dtype, (self.layer.steps, self.layer.batch, self.layer.hidden))

    def _zero(self) -> ir.Expression:
        return b.constant(0, self.layer.dtype)

    # ---- Sums

    def _bias(self, gate: int, unit: ir.Expression, *, recurrent: bool) -> ir.Expression:
        bias, first = self.layer.optional(3), (gate + (self.layer.gates if recurrent else 0)) * self.layer.hidden
        return self._zero() if bias is None else b.load(bias, self.number, b.add(unit, first))

    def _weight(self, number: int, gate: int, unit: ir.Expression, k: ir.Expression) -> ir.Expression:
        return b.load(self.layer.input(number), self.number, b.add(unit, gate * self.layer.hidden), k)

    def _projected(self, gate: int, late: bool) -> ir.Buffer:
        """``X W^T + Wb + Rb`` of a gate for all positions; without Rb where a reset gate comes before it (``late``)."""
        target, x, k = self._temporary(), self.layer.input(0), ir.Variable("k")
        axes = time, row, unit = b.variables(3)
        term = b.multiply(ir.Load(x, (*self.layer.sequence(time, row), k)), self._weight(1, gate, unit, k))
        start = self._bias(gate, unit, recurrent=False)
        if not late and self.layer.optional(3) is not None:
            start = b.add(start, self._bias(gate, unit, recurrent=True))
        reduction = ir.Reduction("add", (ir.Axis(k, b.index(self.layer.features)),), start)
        self.stages.append(ir.Stage(target, axes, term, reduction, structure=Contraction()))
        return target

    def _given(self, gate: int, at: At) -> ir.Expression:
        """The projection of the input that a step reads."""
        return ir.Load(self._rows[gate], (self.layer.time(self.number, at.step, at.row)[0], at.row, at.unit))

    def _scan(self, initial: ir.Expression | None = None) -> ir.Scan:
        return ir.Scan(self.step, initial)

    def _place(self, axes: Sequence[ir.Variable]) -> At:
        return At(self.step, self._scan().previous, *axes)

    def _sum(
        self, gate: int, finish: Finish, target: ir.Buffer | None = None, gated: ir.Buffer | None = None,
        start: Start | None = None, initial: Callable[[At], ir.Expression] | None = None,
    ) -> ir.Buffer:  # fmt: skip
        """``finish(projection + state R^T)``; the state is that of the step before, or ``gated`` of this one."""
        target, k = target or self._temporary(), ir.Variable("k")
        at = self._place(b.variables(2))
        step, state = (at.before, self.hidden) if gated is None else (at.step, gated)
        term = b.multiply(ir.Load(state, (step, at.row, k)), self._weight(2, gate, at.unit, k))
        first = self._given(gate, at) if start is None else start(at)
        reduction = ir.Reduction("add", (ir.Axis(k, b.index(self.layer.hidden)),), first)
        total = ir.Variable("total", Type(self.layer.dtype))
        scan = self._scan(None if initial is None else initial(at))
        axes = (self.step, *(axis for axis in (at.row, at.unit) if isinstance(axis, ir.Variable)))
        whole = ir.Stage(target, axes, term, reduction, total, finish(total, at), structure=Contraction(), order=scan)
        self.stages.append(whole)
        return target

    def _each(self, value: Start, target: ir.Buffer | None = None, initial: Start | None = None) -> ir.Buffer:
        """``value`` of every place at a step."""
        target, axes = target or self._temporary(), b.variables(2)
        at = self._place(axes)
        scan = self._scan(None if initial is None else initial(at))
        self.stages.append(ir.Stage(target, (self.step, *axes), value(at), order=scan))
        return target

    # ---- States

    def first(self, number: int) -> Start:
        """Return the state before the first step: an input, or zero."""
        given = self.layer.optional(number)
        if given is None:
            return lambda at: self._zero()
        return lambda at: ir.Load(given, (*self.layer.state(self.number, at.row), at.unit))

    def _kept(self, value: ir.Expression, state: ir.Buffer, at: At) -> ir.Expression:
        """The new state, or the old one where the row has ended."""
        runs = self.layer.time(self.number, at.step, at.row)[1]
        return value if runs is None else b.select(runs, value, at.last(state))

    def _apply(self, function: int, x: ir.Expression) -> ir.Expression:
        return self.layer.apply(self.number, function, x)

    def _rnn(self) -> None:
        def finish(total: ir.Expression, at: At) -> ir.Expression:
            return self._kept(self._apply(0, total), self.hidden, at)

        self._sum(0, finish, self.hidden, initial=self.first(5))

    def _lstm(self) -> None:
        """``i, o, f, c`` in this order; peepholes in the order ``i, o, f``."""
        peepholes = self.layer.optional(7)

        def gate(number: int, cell: Start) -> ir.Buffer:
            def finish(total: ir.Expression, at: At) -> ir.Expression:
                if peepholes is not None:
                    unit = b.add(at.unit, number * self.layer.hidden)
                    total = b.add(total, b.multiply(b.load(peepholes, self.number, unit), cell(at)))
                return self._apply(0, total)

            return self._sum(number, finish)

        i = gate(0, lambda at: at.last(self.cell))
        one = b.constant(1, self.layer.dtype)
        couple = self.layer.couple
        f = self._each(lambda at: b.subtract(one, at.of(i))) if couple else gate(2, lambda at: at.last(self.cell))
        c = self._sum(3, lambda total, at: self._apply(1, total))

        def cell(at: At) -> ir.Expression:
            new = b.add(b.multiply(at.of(f), at.last(self.cell)), b.multiply(at.of(i), at.of(c)))
            return self._kept(new, self.cell, at)

        self._each(cell, self.cell, self.first(6))
        o = gate(1, lambda at: at.of(self.cell))
        squashed = self.layer.functions[self.number][2]

        def hidden(at: At) -> ir.Expression:
            return self._kept(b.multiply(at.of(o), squashed(at.of(self.cell))), self.hidden, at)

        self._each(hidden, self.hidden, self.first(5))

    def _gru(self) -> None:
        """``z, r, h`` in this order."""
        z, r = (self._sum(gate, lambda total, at: self._apply(0, total)) for gate in (0, 1))
        if self.layer.linear_before_reset:
            product = self._sum(2, lambda total, at: total, start=lambda at: self._bias(2, at.unit, recurrent=True))
            sums = self._each(lambda at: b.add(self._given(2, at), b.multiply(at.of(r), at.of(product))))
            new = self._each(lambda at: self._apply(1, at.of(sums)))
        else:
            gated = self._each(lambda at: b.multiply(at.of(r), at.last(self.hidden)))
            new = self._sum(2, lambda total, at: self._apply(1, total), gated=gated)

        def hidden(at: At) -> ir.Expression:
            one = b.constant(1, self.layer.dtype)
            kept = b.multiply(at.of(z), at.last(self.hidden))
            return self._kept(b.add(b.multiply(b.subtract(one, at.of(z)), at.of(new)), kept), self.hidden, at)

        self._each(hidden, self.hidden, self.first(5))


def _every(
    directions: Sequence[_Direction], number: ir.Expression, value: Callable[[_Direction], ir.Expression]
) -> ir.Expression:
    """``value`` of the direction with a number."""
    first, *rest = map(value, directions)
    return b.select(b.equal(number, 0), first, rest[0]) if rest else first


def _widened(lowering: Lowering) -> tuple[list[ir.Stage], tuple[ir.Buffer | None, ...]]:
    """Return the inputs with 16-bit floats as float32, and the stages that make them so: states are not rounded."""
    stages, inputs = list[ir.Stage](), list[ir.Buffer | None]()
    for buffer in lowering.inputs:
        if buffer is None or b.wide(buffer.dtype) == buffer.dtype:
            inputs.append(buffer)
            continue
        wide = lowering.temporary(b.wide(buffer.dtype), b.extents(buffer))
        stages.append(b.compute(wide, lambda axes, narrow=buffer: b.load(narrow, *axes)))  # type: ignore[misc]
        inputs.append(wide)
    return stages, tuple(inputs)


def _lower(lowering: Lowering) -> tuple[ir.Stage, ...]:
    widening, inputs = _widened(lowering)
    layer = layer_of(lowering.node, inputs, lowering.outputs)
    directions = [_Direction(layer, number, lowering) for number in range(len(layer.reverse))]
    stages = [*widening, *(stage for direction in directions for stage in direction.stages)]
    y = layer.output(0)
    if y is not None:

        def sequence(axes: tuple[ir.Variable, ...]) -> ir.Expression:
            (row, time, number, unit) = axes if layer.batch_first else (axes[2], axes[0], axes[1], axes[3])

            def value(direction: _Direction) -> ir.Expression:
                step, runs = layer.time(direction.number, time, row)  # its own inverse
                state = ir.Load(direction.hidden, (step, row, unit))
                return state if runs is None else b.select(runs, state, 0)

            return _every(directions, number, value)

        stages.append(b.compute(y, sequence))
    for output in (1, 2):
        target = layer.output(output)
        if target is not None:
            stages.append(b.compute(target, lambda axes, output=output: _final(layer, directions, output, axes)))  # type: ignore[misc]
    return tuple(stages)


def _final(layer: Layer, directions: Sequence[_Direction], output: int, axes: tuple[ir.Variable, ...]) -> ir.Expression:
    """The hidden state (output 1) or the cell (2) after the last step."""
    row, number = (axes[0], axes[1]) if layer.batch_first else (axes[1], axes[0])
    known = isinstance(layer.steps, int)
    at = At(layer.last if known else b.maximum(layer.last, 0), b.index(-1), row, axes[2])

    def value(direction: _Direction) -> ir.Expression:
        last, first = at.of(direction.hidden if output == 1 else direction.cell), direction.first(4 + output)
        if layer.steps == 0:
            return first(at)
        return last if known else b.select(b.greater(b.extent(layer.steps), 0), last, first(at))

    return _every(directions, number, value)


def _cost(node: NodeView) -> Cost:
    x, w, r = (shape_of(node.input(number)) for number in range(3))
    steps = x[0] * x[1]
    return Cost(2 * w[0] * w[1] * steps * (w[2] + r[2]), traffic(node))


def _accept(node: NodeView) -> Reject | None:
    if node.dtype not in FLOATS and not is_custom(node.dtype):
        return Reject("dtype", f"{node.op_type} of {node.dtype}; floats and custom types are lowered")
    known = {name.lower() for name in (*PLAIN, *NEED_ALPHA)}
    unknown = [name for name in node.attribute("activations") or [] if name.lower() not in known]
    if unknown:
        return Reject("attribute", f"activation '{unknown[0]}' of {node.op_type} is not known")
    return None


def _varies(node: NodeView) -> Reject | None:
    """Take any batch and any number of steps."""
    source = node.input(0)
    assert source is not None, node.where
    if not isinstance((source.shape or ())[2], int):
        return varying_axis(node, source, 2)
    for number in (1, 2, 3, 7):
        weights = node.input(number)
        if weights is not None and weights.static_shape is None:
            axis = next(axis for axis, extent in enumerate(weights.shape or ()) if not isinstance(extent, int))
            return varying_axis(node, weights, axis)
    return None


def _demands(node: NodeView) -> Iterator[Equation]:
    """Weights of as many gates, units and features as there are, and states and lengths of the same batch."""
    gates, batch = GATES[node.op_type], 0 if node.attribute("layout", 0) else 1
    units = demand.operand(node, 2, 2)
    all_gates = demand.times(units, gates)
    ranks = {0: 3, 1: 3, 2: 3, 3: 2, 4: 1, 5: 3, 6: 3, 7: 2}
    yield from demand.all_of(demand.ranked(ranks), demand.same(1, 2, 0, 2))(node)
    wanted = {1: (1, all_gates), 2: (1, all_gates), 3: (1, demand.times(all_gates, 2)), 7: (1, demand.times(units, 3))}
    for number, (axis, extent) in {**wanted, 5: (2, units), 6: (2, units)}.items():
        yield from demand.equation(demand.operand(node, number, axis), extent)
        directions = (1 if batch == 0 else 0) if number in (5, 6) else 0
        yield from demand.equation(
            demand.operand(node, number, directions), 2 if node.attribute("direction") == "bidirectional" else 1
        )
    for number, axis in ((4, 0), (5, batch), (6, batch)):
        yield from demand.equation(demand.operand(node, number, axis), demand.operand(node, 0, batch))


_CHECKS = (
    check.at_least(1, "hidden_size"),
    check.at_least(0, "clip"),
    check.one_of("direction", "forward", "reverse", "bidirectional"),
    check.one_of("layout", 0, 1),
)


for _name in GATES:
    define(
        _name, frozenset({Trait.RECURRENT}), _lower, _cost, _accept, varies=_varies, demands=_demands,
        shapes=shapes.recurrent, attributes=_CHECKS, asked_when_loaded=True,
        indices=index_bounds.counts(4, lambda node: int(node.attribute("layout", 0))),
        vjp=through(recurrence, instead=True),
    )  # fmt: skip
