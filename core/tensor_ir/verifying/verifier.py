"""The verifier: checks the invariants that `graft.core.tensor_ir.ir` states, and nothing else.

Types and names are checked completely. That an access stays inside its buffer is checked where the index is a sum of
multiples of loop variables with constant extents, outside of branches; that iterations of a parallel loop write
different elements, as far as every store must depend on the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, assert_never

from graft.core.machine.machine import Machine
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import (
    carried_dimension,
    order_axes,
    reads_before,
    scan_of,
    stage_expressions,
    stage_loops,
    with_carried,
)
from graft.core.tensor_ir.printer import print_expression, print_stages, print_statement
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.verifying.anchor_rules import structure_fault
from graft.core.tensor_ir.verifying.machine_check import machine_fault, machine_faults
from graft.core.tensor_ir.verifying.type_rules import access_fault, is_foreign, layout_fault, type_fault
from graft.core.tensor_ir.visit import chain_of_lets, free_variables, loads, walk_expressions
from graft.core.types import BOOL, INT64, Type, element_bits
from graft.errors import CompileError


def verify(function: ir.Function, machine: Machine | None = None) -> None:
    """Raise CompileError, saying what and where, if a function breaks an invariant of the IR.

    With a ``machine``, its own instructions are known, levels nest as there, and what it lacks is an error.
    """
    verifier = _Verifier(f"function '{function.name}'", machine)
    verifier.function(function)
    for what, place in () if machine is None else machine_faults(function, machine):
        verifier.fail(what, place)


def verify_stages(stages: Sequence[ir.Stage], inputs: Sequence[ir.Buffer] = ()) -> None:
    """Raise CompileError if stages break an invariant; ``inputs`` may be read besides what earlier stages wrote.

    Without ``inputs`` every buffer that no stage writes counts as an input.
    """
    written = {stage.buffer for stage in stages}
    known = set(inputs) if inputs else set()
    for loop in stage_loops(stages):
        for stage in loop:
            if not inputs:
                nodes = walk_expressions(*stage_expressions(stage))
                known |= {node.buffer for node in nodes if isinstance(node, ir.Load) and node.buffer not in written}
            verifier = _Verifier(f"stage of '{stage.buffer.name}'")
            if stage.buffer in known:
                verifier.fail("its buffer is written twice or is an input", print_stages([stage]))
            if isinstance(stage.order, ir.Scan):
                verifier.scan(stage, loop)
                verifier.stage(_with_known_position(stage, loop), known | {other.buffer for other in loop})
            else:
                verifier.stage(stage, known)
            known.add(stage.buffer)


def verify_stage(stage: ir.Stage) -> None:
    """Raise CompileError if one stage breaks an invariant; it may read any buffer but its own."""
    verify_stages([stage])


def _with_known_position(stage: ir.Stage, loop: Sequence[ir.Stage]) -> ir.Stage:
    """Return a scan's stage whose loads from the position before stay inside the buffers, as they do when it runs."""

    def load(source: ir.Stage, node: ir.Load) -> ir.Load:
        dimension, scan = carried_dimension(source), scan_of(source)
        last = ir.Binary("sub", source.buffer.shape[dimension], ir.Constant(1, INT64))
        bound = (
            ir.Binary("min", scan.previous, last)
            if scan.reverse
            else ir.Binary("max", scan.previous, ir.Constant(0, INT64))
        )
        return replace(node, indices=(*node.indices[:dimension], bound, *node.indices[dimension + 1 :]))

    return with_carried(loop, load)[loop.index(stage)]


def _same_bytes(left: ir.Buffer, right: ir.Buffer) -> bool:
    return left.shape == right.shape and element_bits(left.dtype) == element_bits(right.dtype)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What may be used at a place: buffers, variables, and which of them depend on parallel loops."""

    buffers: frozenset[ir.Buffer] = frozenset()
    variables: frozenset[ir.Variable] = frozenset()
    parallel: tuple[tuple[ir.Variable, frozenset[ir.Buffer]], ...] = ()
    """The parallel loops around the place, and the buffers from outside of each."""
    derived: tuple[tuple[ir.Variable, frozenset[ir.Variable]], ...] = ()
    """For variables that are not loop indices: the variables that their value depends on."""
    exact: bool = True
    """Whether every iteration gets here, so that the bounds of indices are reached."""
    varies: bool = False
    """Whether a loop around has an extent that is no number, and may have no iterations."""
    reached: bool = True
    """Whether any iteration may get here: no condition around is known to be false, no loop to be empty."""
    loops: tuple[ir.For, ...] = ()
    """The parallel loops around the place, bound ones included."""
    decided: frozenset[ir.Variable] = frozenset()
    """What decides whether, or how often, the place is reached."""
    queue: str = ""
    """The queue that the place is issued to."""


@dataclass(slots=True)
class _Verifier:
    where: str
    machine: Machine | None = None
    bound: set[ir.Variable] = field(default_factory=set)
    counted: set[ir.Variable] = field(default_factory=set)
    """Loop variables with constant extents."""
    simplifier: Simplifier = field(default_factory=Simplifier)
    typed: set[int] = field(default_factory=set)

    def fail(self, what: str, place: str) -> NoReturn:
        """Raise the error: what is wrong, and the first line of the text of the place."""
        line = place.strip().split("\n")[0]
        raise CompileError(f"{self.where}: {what}, in '{line if len(line) < 200 else line[:197] + '...'}'")

    def function(self, function: ir.Function) -> None:
        """Check a function."""
        text = f"function {function.name}"
        if len(set(function.parameters)) != len(function.parameters):
            self.fail("a buffer is two parameters", text)
        symbols: set[ir.Variable] = set()
        for buffer in function.parameters:
            if (fault := layout_fault(buffer) or layout_fault(buffer.outside)) is not None:
                self.fail(fault, text)
            symbols |= free_variables(*buffer.outside.shape, *(buffer.outside.strides or ()))
        self.bound |= symbols
        for number in function.in_place:
            known = number in range(len(function.input_buffers)) and function.outputs == 1
            if not known or not _same_bytes(function.parameters[number], function.parameters[-1]):
                self.fail(f"its output cannot be in the place of input {number}", text)
        scope = _Scope(frozenset(function.parameters), frozenset(symbols))
        self.statement(function.body, scope)

    # ---- Statements

    def statement(self, statement: ir.Statement, scope: _Scope) -> None:
        """Check a statement."""
        fault = None if self.machine is None else machine_fault(statement, self.machine)
        if fault is not None:
            self.fail(fault, print_statement(statement))
        match statement:
            case ir.Store():
                self.store(statement, scope)
            case ir.For():
                self.loop(statement, scope)
            case ir.If(condition, then_body, else_body):
                self.expressions(statement, scope, condition)
                if condition.type != BOOL:
                    self.fail(f"the condition is {condition.type}, not bool", print_statement(statement))
                known = self.simplifier(condition)
                truth = bool(known.value) if isinstance(known, ir.Constant) else None
                inner = replace(scope, exact=False, decided=scope.decided | self.depends(scope, condition))
                self.statement(then_body, replace(inner, reached=inner.reached and truth is not False))
                if else_body is not None:
                    self.statement(else_body, replace(inner, reached=inner.reached and truth is not True))
            case ir.Let():
                chain, inner_statement = chain_of_lets(statement)
                for let in chain:
                    scope = self.let(let, scope)
                self.statement(inner_statement, scope)
            case ir.Allocate(buffer, body):
                self.expressions(statement, scope, *buffer.shape)
                if buffer in scope.buffers:
                    self.fail(f"buffer '{buffer.name}' is already allocated", print_statement(statement))
                self.statement(body, replace(scope, buffers=scope.buffers | {buffer}))
            case ir.Block(statements):
                for inner_statement in statements:
                    self.statement(inner_statement, scope)
            case ir.CallExtern("prefetch", (ir.Load(_, indices), *rest)):
                self.expressions(statement, scope, *indices, *rest)
            case ir.CallExtern(_, arguments):
                self.expressions(statement, scope, *arguments)
            case ir.Barrier():
                self.barrier(statement, scope)
            case ir.Issue(queue, body):
                around = [loop for loop in scope.loops if ir.level_of(loop.binding) != "vthread"]
                if scope.queue or around:
                    what = (
                        f"an issue to '{scope.queue}'" if scope.queue else f"parallel loop '{around[-1].variable.name}'"
                    )
                    self.fail(f"an issue inside of {what}", print_statement(statement))
                self.statement(body, replace(scope, queue=queue))
            case ir.Push(source=own) | ir.Pop(target=own):
                if own != scope.queue:
                    where = f"an issue to '{scope.queue}'" if scope.queue else "no issue"
                    self.fail(f"it is for the queue '{own}' and stands in {where}", print_statement(statement))
            case _:
                assert_never(statement)

    def barrier(self, barrier: ir.Barrier, scope: _Scope) -> None:
        """Check that a barrier has units to wait for, and that all of them reach it."""
        levels = [ir.level_of(loop.binding) for loop in scope.loops]
        if barrier.scope == "queue" and not levels and not scope.queue:
            return
        inside = levels.index(barrier.scope) if barrier.scope in levels and not scope.queue else len(levels)
        while inside < len(levels) and levels[inside] == barrier.scope:
            inside += 1
        if barrier.units and inside == len(levels) and not scope.queue:
            inside = max(len(levels) - 1, 0)
        if inside == len(levels) or "" in levels[inside:]:
            what = f"a barrier outside of its level: no loop is bound below '{barrier.scope}' around it"
            self.fail(what, print_statement(barrier))
        for loop in scope.loops[inside:]:
            if loop.variable in scope.decided:
                what = f"a barrier that not all iterations of '{loop.variable.name}' reach"
                self.fail(what, print_statement(barrier))

    def bind(self, variable: ir.Variable, statement: ir.Statement, scope: _Scope) -> _Scope:
        """Return the scope inside a binder."""
        if variable in self.bound:
            self.fail(f"variable '{variable.name}' is bound twice", print_statement(statement))
        self.bound.add(variable)
        return replace(scope, variables=scope.variables | {variable})

    def let(self, let: ir.Let, scope: _Scope) -> _Scope:
        """Check what a variable is bound to and return the scope inside."""
        self.expressions(let, scope, let.value)
        variable, value = let.variable, let.value
        if variable.type != value.type:
            self.fail(f"'{variable.name}' is {variable.type}, its value {value.type}", print_statement(let))
        bounds = self.simplifier.interval(self.simplifier(value)) if value.type == INT64 else None
        if bounds is not None:
            self.simplifier.with_range(variable, bounds)
        derived = (*scope.derived, (variable, self.depends(scope, value)))
        return replace(self.bind(variable, let, scope), derived=derived)

    def loop(self, loop: ir.For, scope: _Scope) -> None:
        """Check a loop."""
        self.expressions(loop, scope, loop.extent)
        if loop.extent.type != INT64 or loop.variable.type != INT64:
            self.fail(
                f"index and extent are {loop.variable.type} and {loop.extent.type}, not int64", print_statement(loop)
            )
        constant = loop.extent.value if isinstance(loop.extent, ir.Constant) else None
        if loop.kind == "vector" and constant is None:
            self.fail("the extent of a vector loop must be constant", print_statement(loop))
        inner = self.bind(loop.variable, loop, scope)
        decided = inner.decided | self.depends(scope, loop.extent)
        inner = replace(inner, decided=decided, loops=(*scope.loops, loop) if loop.kind == "parallel" else scope.loops)
        self.binding(loop, scope)
        if constant is not None:
            self.counted.add(loop.variable)
            self.simplifier.with_range(loop.variable, (0, max(0, int(constant) - 1)))
            inner = replace(inner, exact=inner.exact and constant > 0, reached=inner.reached and constant > 0)
        else:
            count = self.simplifier.interval(self.simplifier(loop.extent))
            inner = replace(inner, varies=True, reached=inner.reached and (count is None or count[1] > 0))
            if count is not None:
                self.simplifier.with_range(loop.variable, (0, max(0, count[1] - 1)))
        if loop.kind == "parallel" and constant != 1:
            inner = replace(inner, parallel=(*scope.parallel, (loop.variable, scope.buffers)))
        self.statement(loop.body, inner)

    def binding(self, loop: ir.For, scope: _Scope) -> None:
        """Check that a loop may be bound where it stands."""
        if not loop.binding:
            return
        if loop.kind != "parallel":
            self.fail(f"a {loop.kind} loop is bound; bind a parallel one", print_statement(loop))
        bindings = [other.binding for other in scope.loops]
        if loop.binding in bindings:
            self.fail(f"two loops, one in the other, are bound to '{loop.binding}'", print_statement(loop))
        order = [] if self.machine is None else [level.name for level in self.machine.levels]
        for other in map(ir.level_of, bindings):
            if order and other and order.index(other) > order.index(ir.level_of(loop.binding)):
                self.fail(f"level '{ir.level_of(loop.binding)}' inside of level '{other}'", print_statement(loop))

    def store(self, store: ir.Store, scope: _Scope) -> None:
        """Check a store."""
        extra = () if store.mask is None else (store.mask,)
        self.expressions(store, scope, *store.indices, store.value, *extra)
        self.access(store.buffer, store.indices, store.mask, scope, store)
        lanes = ir.access_lanes(store.indices, store.mask)
        if store.value.type.dtype != store.buffer.dtype or store.value.type.lanes != lanes:
            expected = f"{store.buffer.dtype}x{lanes}" if lanes > 1 else store.buffer.dtype
            self.fail(f"the value is {store.value.type}, the place {expected}", print_statement(store))
        if scope.parallel and store.buffer in scope.parallel[-1][1]:
            sources = self.depends(scope, *store.indices, *extra)
            told = {load.buffer for load in loads(*store.indices, *extra)}  # what is an iteration's own may differ
            for variable, shared in scope.parallel:
                if variable not in sources and scope.exact and store.buffer in shared and told <= shared:
                    what = f"all iterations of the parallel loop over '{variable.name}' write the same elements"
                    self.fail(what, print_statement(store))

    def depends(self, scope: _Scope, *expressions: ir.Expression) -> frozenset[ir.Variable]:
        """Return the variables that expressions depend on, through ``let`` and what serial loops between bind."""
        known = dict(scope.derived)
        found = set(free_variables(*expressions))
        for variable in list(found):
            found |= known.get(variable, frozenset())
        return frozenset(found)

    # ---- Expressions

    def expressions(self, place: ir.Statement, scope: _Scope, *roots: ir.Expression) -> None:
        """Check expressions that stand directly in a statement."""
        for node in walk_expressions(*roots):
            if isinstance(node, ir.Variable) and node not in scope.variables:
                self.fail(f"variable '{node.name}' is not bound here", print_statement(place))
            if isinstance(node, ir.Load):
                self.access(node.buffer, node.indices, node.mask, scope, node)
            self.types(node)

    def types(self, node: ir.Expression) -> None:
        """Check the types of one node, once."""
        if id(node) in self.typed:
            return
        self.typed.add(id(node))
        if self.machine is not None and isinstance(node, ir.Intrinsic) and is_foreign(node.name):
            if not self.machine.has(node.name):
                self.fail(f"the machine '{self.machine.name}' has no instruction '{node.name}'", print_expression(node))
            return
        fault = type_fault(node)
        if fault is not None:
            self.fail(fault, print_expression(node))

    def access(
        self,
        buffer: ir.Buffer,
        indices: tuple[ir.Expression, ...],
        mask: ir.Expression | None,
        scope: _Scope,
        place: ir.Store | ir.Load,
    ) -> None:
        """Check an access: a known buffer, an index per dimension, all inside."""

        def text() -> str:
            return print_statement(place) if isinstance(place, ir.Store) else print_expression(place)

        if buffer not in scope.buffers:
            self.fail(f"buffer '{buffer.name}' is neither a parameter nor allocated here", text())
        if len(indices) != len(buffer.shape):
            self.fail(f"'{buffer.name}' has {len(buffer.shape)} dimensions, {len(indices)} indices are given", text())
        fault = access_fault(indices, mask)
        if fault is not None:
            self.fail(fault, text())
        if mask is not None or not scope.reached:
            return
        for dimension, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            bounds = self.bounds(index)
            if bounds is None or not isinstance(extent, ir.Constant):
                continue
            low, high = bounds
            outside = low < 0 or high >= extent.value
            certain = high < 0 or low >= extent.value
            if certain or (outside and scope.exact and not scope.varies):
                what = f"index {low} to {high} leaves dimension {dimension} of '{buffer.name}' ({extent.value})"
                self.fail(what, text())

    def bounds(self, index: ir.Expression) -> tuple[int, int] | None:
        """Return the bounds of an index if they are reached: a sum of multiples of counted loop variables."""
        form = self.simplifier.form(self.simplifier(index))
        atoms = {self.simplifier.atom(number) for number in form.terms}
        if not (atoms | free_variables(index)) <= self.counted:
            return None
        return self.simplifier.interval(self.simplifier(index))

    # ---- Stages

    def scan(self, stage: ir.Stage, loop: Sequence[ir.Stage]) -> None:
        """Check what a stage of a scan reads of its loop: its own position or the one before, nowhere else."""
        text, before = print_stages([stage]), loop[: loop.index(stage)]
        scan = scan_of(stage)
        if scan.carried not in stage.axes:
            self.fail(f"it carries '{scan.carried.name}', which is none of its axes", text)
        if scan.reverse != scan_of(loop[0]).reverse:
            self.fail("a stage of its loop runs the other way", text)
        if stage.buffer.shape[carried_dimension(stage)] != loop[0].buffer.shape[carried_dimension(loop[0])]:
            self.fail("a stage of its loop has another number of positions", text)
        if scan.initial is not None and scan.carried in free_variables(scan.initial):
            self.fail("what it starts from depends on the position", text)
        for load in loads(*stage_expressions(stage)):
            source = next((other for other in loop if other.buffer is load.buffer), None)
            if source is None or len(load.indices) != len(source.axes):
                continue
            if reads_before(loop, load) is not None:
                if scan_of(source).initial is None:
                    self.fail(
                        f"'{source.buffer.name}' is read before its first position and has no initial value", text
                    )
            elif load.indices[carried_dimension(source)] is not scan.carried or source not in before:
                own = f", or at '{scan.carried.name}' what stands before" if before else ""
                shown = print_expression(scan.previous)
                self.fail(f"a scan reads its loop at '{shown}'{own}, not '{print_expression(load)}'", text)

    def scatter(self, stage: ir.Stage, scatter: ir.Scatter, outer: _Scope, *, exact: bool) -> None:
        """Check the updates of a scatter and the places that they go to."""
        empty = any(isinstance(axis.extent, ir.Constant) and axis.extent.value == 0 for axis in scatter.axes)
        inside = replace(outer, variables=outer.variables | {axis.variable for axis in scatter.axes})
        inside = replace(inside, buffers=inside.buffers | {stage.buffer}, exact=exact and not empty)
        self.store(ir.Store(stage.buffer, scatter.indices, scatter.update), inside)
        self.combined(scatter.operator, scatter.update.type, print_stages([stage]))

    def combined(self, operator: str, kind: Type, text: str) -> None:
        """Check that elements of a type have what they are combined by."""
        if kind.dtype == "bool" and operator in ("add", "mul"):
            self.fail(f"'{operator}' of bool; 'or' and 'and' combine truth values, 'max' and 'min' scatter them", text)

    def selection(self, stage: ir.Stage, rank: ir.Variable, candidate: ir.Axis) -> None:
        """Check that a selection stores positions, and no more than there are."""
        text = print_stages([stage])
        if rank not in stage.axes:
            self.fail(f"it ranks along '{rank.name}', which is none of its axes", text)
        if rank in free_variables(stage.value):
            self.fail("a key depends on the rank", text)
        if stage.buffer.dtype != "int64":
            self.fail(f"positions are int64, the buffer {stage.buffer.dtype}", text)
        count, extent = stage.buffer.shape[stage.axes.index(rank)], candidate.extent
        if isinstance(count, ir.Constant) and isinstance(extent, ir.Constant) and count.value > extent.value:
            self.fail(f"{count.value} of {extent.value} candidates cannot be chosen", text)

    def stage(self, stage: ir.Stage, known: set[ir.Buffer]) -> None:
        """Check a stage."""
        text = print_stages([stage])
        if len(stage.axes) != len(stage.buffer.shape):
            self.fail(f"{len(stage.axes)} axes for {len(stage.buffer.shape)} dimensions", text)
        reduced = () if stage.reduction is None else stage.reduction.axes
        extents = [
            *zip(stage.axes, stage.buffer.shape, strict=True),
            *((axis.variable, axis.extent) for axis in (*reduced, *order_axes(stage.order))),
        ]
        symbols = frozenset().union(*(free_variables(extent) for _, extent in extents))
        outer = _Scope(frozenset(known), symbols)
        for variable, extent in extents:
            if variable in self.bound:
                self.fail(f"variable '{variable.name}' is bound twice", text)
            self.bound.add(variable)
            if isinstance(extent, ir.Constant):
                self.counted.add(variable)
                self.simplifier.with_range(variable, (0, max(0, int(extent.value) - 1)))
        empty = any(isinstance(extent, ir.Constant) and extent.value == 0 for _, extent in extents)
        axes = replace(outer, variables=outer.variables | set(stage.axes), exact=not empty)
        inner = {axis.variable for axis in reduced}
        if isinstance(stage.order, ir.Selection):
            inner.add(stage.order.candidate.variable)
        everything = replace(axes, variables=axes.variables | inner)
        place = ir.Store(stage.buffer, stage.axes, stage.value)
        self.expressions(place, everything, stage.value)
        result = stage.value
        if stage.reduction is not None:
            self.expressions(place, axes, stage.reduction.initial)
            if stage.reduction.initial.type != stage.value.type:
                self.fail(f"the initial value is {stage.reduction.initial.type}, the value {stage.value.type}", text)
            self.combined(stage.reduction.operator, stage.value.type, text)
        if (stage.epilogue is None) != (stage.epilogue_variable is None) or (stage.epilogue and not stage.reduction):
            self.fail("an epilogue needs a variable and a reduction", text)
        if stage.epilogue is not None and stage.epilogue_variable is not None:
            if stage.epilogue_variable.type != stage.value.type:
                self.fail(f"the epilogue gets {stage.epilogue_variable.type}, the value is {stage.value.type}", text)
            inside = replace(axes, variables=axes.variables | {stage.epilogue_variable})
            self.expressions(place, inside, stage.epilogue)
            result = stage.epilogue
        match stage.order:
            case ir.Scan(_, initial) if initial is not None:
                self.expressions(place, axes, initial)
                if str(initial.type) != stage.buffer.dtype:
                    self.fail(f"the scan starts from {initial.type}, the buffer is {stage.buffer.dtype}", text)
            case ir.Scatter():
                self.scatter(stage, stage.order, outer, exact=not empty)
                result = stage.value
            case ir.Selection(rank, candidate):
                self.selection(stage, rank, candidate)
                return
        if str(result.type) != stage.buffer.dtype:
            self.fail(f"the value is {result.type}, the buffer {stage.buffer.dtype}", text)
        fault = structure_fault(stage)
        if fault is not None:
            self.fail(f"it says that it is {fault}", text)
