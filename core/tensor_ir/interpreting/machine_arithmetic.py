"""A machine that runs scheduled functions one iteration after another.

Nothing is reordered or skipped, so a result that differs from the stages' is a fault of the schedule. To bring faults
to light, parallel loops run backwards, memory that nothing wrote holds NaN or odd numbers, and every access is
checked against its buffer; things that are done at the same time (`concurrency`) are checked for races. A statement
becomes a closure and an expression a tape of operations over registers; there, int64 and bool scalars are Python's own
(index arithmetic is most of the work) and all else is NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

import numpy as np

from graft.core.tensor_ir import ir, numerics
from graft.core.tensor_ir.interpreting.concurrency import Context, Queues, Steps, lockstep, text
from graft.core.tensor_ir.interpreting.machine_operations import (
    INDEX_OPERATIONS,
    active_lanes,
    as_array,
    as_python,
    elements,
    pure,
)
from graft.core.tensor_ir.numerics import Array
from graft.core.tensor_ir.visit import chain_of_lets, children, statement_children, unknown, walk_statements
from graft.core.types import BOOL, INT64, Type

Extern: TypeAlias = Callable[..., Any]
_Action: TypeAlias = Callable[[], None]


def run_function(
    function: ir.Function,
    inputs: Sequence[Array],
    outputs: Sequence[tuple[int, ...]] | None = None,
    externs: Mapping[str, Extern] | None = None,
) -> list[Array]:
    """Run a function on one array per input buffer and return one array per output buffer.

    ``outputs`` gives the shapes of the outputs where they are not constant. ``externs`` provides the functions behind
    `CallExtern` and ``extern:`` intrinsics by name; a `Load` argument of a `CallExtern` is passed as a flat view that
    starts at that element. An access outside its buffer raises AssertionError.
    """
    machine = _Machine(externs or {})
    assert len(inputs) == len(function.input_buffers), f"{len(inputs)} inputs for {len(function.input_buffers)} buffers"
    shapes = outputs or [tuple(_fixed(extent) for extent in one.outside.shape) for one in function.output_buffers]
    results = [poisoned(buffer.dtype, shape) for buffer, shape in zip(function.output_buffers, shapes, strict=True)]
    for buffer, array in zip(function.parameters, [*inputs, *results], strict=True):
        machine.bind(buffer, np.asarray(array))
    for buffer in function.parameters:
        machine.see(buffer)
    statements = list(walk_statements(function.body))
    if any(isinstance(one, ir.Issue) for one in statements):
        machine.queues.begin()
    machine.tracked = _tracked(statements)
    with np.errstate(all="ignore"):
        machine.statement(function.body)()
        machine.queues.drain()
    return results


def _tracked(statements: Sequence[ir.Statement]) -> frozenset[ir.Buffer]:
    """Return the buffers that are written by a function in which things are done at the same time."""
    if not any(isinstance(one, ir.Issue) or (isinstance(one, ir.For) and one.binding) for one in statements):
        return frozenset()
    calls = (one.arguments for one in statements if isinstance(one, ir.CallExtern))
    called = {argument.buffer for arguments in calls for argument in arguments if isinstance(argument, ir.Load)}
    return frozenset(one.buffer for one in statements if isinstance(one, ir.Store)) | called


def _waits(statement: ir.Statement) -> bool:
    """Whether a statement may have to wait; what it issues does not count."""
    if isinstance(statement, ir.Issue):
        return False
    if isinstance(statement, ir.Barrier | ir.Pop):
        return not isinstance(statement, ir.Barrier) or statement.scope != "queue"
    return any(map(_waits, statement_children(statement)))


def _once(action: _Action) -> Callable[[], Steps]:
    def steps() -> Steps:
        action()
        yield from ()

    return steps


def _fail_index(index: int, axis: int, extent: int, low: int, high: int) -> None:
    raise IndexError(
        f"index {index} is out of range: axis {axis} has extent {extent}, so that {low} to {high} are legal"
    )


def _fail_extent(computed: int, axis: int, stated: int) -> None:
    raise IndexError(
        f"the operands make the extent {computed} of axis {axis} of the result, but the model states {stated}"
    )


_FAILURES: Mapping[str, Callable[..., None]] = {"fail_index": _fail_index, "fail_extent": _fail_extent}


def poisoned(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return an array of undefined contents: NaN for floats, the byte 0xA5 for integers, True for bool."""
    kind = numerics.storage(dtype)
    if dtype == "bool":
        return np.ones(shape, kind)
    if kind.kind in "iu":
        return np.full(shape, int.from_bytes(b"\xa5" * kind.itemsize, "little"), f"u{kind.itemsize}").view(kind)
    return np.full(shape, np.nan, kind)


def _fixed(extent: ir.Expression) -> int:
    assert isinstance(extent, ir.Constant), "give the shapes of outputs that are symbolic"
    return int(extent.value)


class _Machine:
    """Compiles statements to closures over one list of registers."""

    def __init__(self, externs: Mapping[str, Extern]) -> None:
        self.externs = externs
        self.context = Context()
        self.registers = self.context.registers
        self.queues = Queues(self.context)
        self.homes: dict[ir.Variable, int] = {}
        self.levels = [""]
        """The levels of the bound loops around what is compiled."""
        self.tracked: frozenset[ir.Buffer] = frozenset()
        """The buffers whose accesses may be in a race."""
        self.current: ir.Statement = ir.Block(())
        """The statement that is compiled."""

    def bind(self, buffer: ir.Buffer, array: Array) -> None:
        """Give a parameter its memory, and symbolic extents and strides their values."""
        tensor = buffer.outside
        assert array.ndim == len(tensor.shape), f"'{buffer.name}' has rank {len(tensor.shape)}, the array {array.ndim}"
        assert array.dtype == numerics.storage(buffer.dtype), f"'{buffer.name}' is {buffer.dtype}, not {array.dtype}"
        for extent, size in zip(tensor.shape, array.shape, strict=True):
            if isinstance(extent, ir.Variable):
                self.registers[self.home(extent)] = size
            elif isinstance(extent, ir.Constant):
                assert extent.value == size, f"'{buffer.name}' has shape {array.shape}, expected {extent.value}"
        for stride, step in zip(tensor.strides or (), array.strides, strict=False):
            if isinstance(stride, ir.Variable):
                self.registers[self.home(stride)] = step // array.itemsize
        self.context.memory[buffer] = array

    def see(self, buffer: ir.Buffer) -> None:
        """Give a parameter that is indexed by other extents than its tensor has that memory by these extents."""
        if buffer.tensor is None:
            return
        array = self.context.memory[buffer]
        extents = [self.expression(extent)() for extent in buffer.shape]
        steps = np.cumprod([array.itemsize, *reversed(extents[1:])])[::-1]
        self.context.memory[buffer] = np.lib.stride_tricks.as_strided(array, extents, steps)

    def register(self, value: Any = None) -> int:
        """Return a fresh register."""
        self.registers.append(value)
        return len(self.registers) - 1

    def home(self, variable: ir.Variable) -> int:
        """Return the register of a variable."""
        if variable not in self.homes:
            self.homes[variable] = self.register()
        return self.homes[variable]

    # ---- Statements

    def statement(self, statement: ir.Statement) -> _Action:
        """Return the closure that executes a statement."""
        self.current = statement
        match statement:
            case ir.Store():
                return self._store(statement)
            case ir.For(binding=binding) if binding:
                return self._to_the_end(statement)
            case ir.For():
                return self._loop(statement)
            case ir.If(condition, then_body, else_body):
                test, then_action = self.expression(condition), self.statement(then_body)
                else_action = self.statement(else_body) if else_body is not None else lambda: None
                return lambda: then_action() if test() else else_action()
            case ir.Let():
                return self._lets(statement)
            case ir.Allocate(buffer, body):
                return self._allocate(buffer, body)
            case ir.Block(statements):
                actions = [self.statement(inner) for inner in statements]

                def run_all() -> None:
                    for action in actions:
                        action()

                return run_all
            case ir.CallExtern(name, arguments):
                return self._call(name, arguments)
            case ir.Barrier():
                assert statement.scope == "queue", f"'{text(statement)}' stands outside of its level"
                return self.queues.drain
            case ir.Issue(_, body):
                steps = self.steps(body)
                return lambda: self.queues.issue(statement, steps)
            case ir.Push():
                return lambda: self.queues.push(statement)
            case ir.Pop():
                return self._to_the_end(statement)
            case _:
                assert_never(statement)

    def _to_the_end(self, statement: ir.Statement) -> _Action:
        steps = self.steps(statement)

        def run() -> None:
            for wait in steps():
                raise AssertionError(f"'{text(wait)}' stands outside of its level")

        return run

    # ---- Statements that wait

    def steps(self, statement: ir.Statement) -> Callable[[], Steps]:
        """Return what runs a statement and yields where it must wait."""
        self.current = statement
        match statement:
            case ir.For(binding=binding) if binding:
                return self._lockstep(statement)
            case ir.Barrier(scope) if scope != "queue":
                return lambda: iter((statement,))
            case ir.Pop():
                return lambda: self.queues.pop(statement)
            case ir.For() | ir.Let() | ir.Allocate() | ir.If() | ir.Block() if _waits(statement):
                return self._steps_inside(statement)
            case _:
                return _once(self.statement(statement))

    def _lockstep(self, loop: ir.For) -> Callable[[], Steps]:
        home, extent, parent = self.home(loop.variable), self.expression(loop.extent), self.levels[-1]
        self.levels.append(ir.level_of(loop.binding))
        body = self.steps(loop.body)
        self.levels.pop()

        def run() -> Steps:  # when the unit around it runs: the extent may depend on which that is
            yield from lockstep(self.context, loop, home, extent(), body, parent)

        return run

    def _steps_inside(self, statement: ir.For | ir.Let | ir.Allocate | ir.If | ir.Block) -> Callable[[], Steps]:
        registers = self.registers
        match statement:
            case ir.Block(statements):
                parts = [self.steps(inner) for inner in statements]
                return lambda: (wait for part in parts for wait in part())
            case ir.If(condition, then_body, else_body):
                test, arms = self.expression(condition), [self.steps(else_body or ir.Block(())), self.steps(then_body)]

                def branch() -> Steps:
                    yield from arms[test()]()

                return branch
            case ir.Let(variable, value, body):
                compute, home, inner = self.expression(value), self.home(variable), self.steps(body)

                def bind() -> Steps:
                    registers[home] = compute()
                    yield from inner()

                return bind
            case ir.For(variable, count, _, body):
                extent, home, inner = self.expression(count), self.home(variable), self.steps(body)

                def run() -> Steps:
                    for index in range(extent()):
                        registers[home] = index
                        yield from inner()

                return run
            case ir.Allocate(buffer, body):
                extents, inner = [self.expression(extent) for extent in buffer.shape], self.steps(body)

                def allocate() -> Steps:
                    self._take(buffer, tuple(extent() for extent in extents))
                    yield from inner()
                    del self.context.memory[buffer]

                return allocate
            case _:
                assert_never(statement)

    def _take(self, buffer: ir.Buffer, shape: tuple[int, ...]) -> None:
        array = self.context.memory[buffer] = poisoned(buffer.dtype, shape)
        self.context.own(array)

    def _loop(self, loop: ir.For) -> _Action:
        registers, home = self.registers, self.home(loop.variable)
        extent, body, backwards = self.expression(loop.extent), self.statement(loop.body), loop.kind == "parallel"

        def run() -> None:
            count = extent()
            for index in reversed(range(count)) if backwards else range(count):
                registers[home] = index
                body()

        return run

    def _lets(self, statement: ir.Statement) -> _Action:
        registers = self.registers
        chain, body = chain_of_lets(statement)
        steps = [(self.home(one.variable), self.expression(one.value)) for one in chain]
        inner = self.statement(body)

        def run() -> None:
            for home, compute in steps:
                registers[home] = compute()
            inner()

        return run

    def _allocate(self, buffer: ir.Buffer, body: ir.Statement) -> _Action:
        extents, inner = [self.expression(extent) for extent in buffer.shape], self.statement(body)

        def run() -> None:
            self._take(buffer, tuple(extent() for extent in extents))
            inner()
            del self.context.memory[buffer]

        return run

    def _store(self, store: ir.Store) -> _Action:
        lanes = ir.access_lanes(store.indices, store.mask)
        operands = (*store.indices, store.value, *(() if store.mask is None else (store.mask,)))
        run, homes = self._tape(operands)
        registers, buffer, rank = self.registers, store.buffer, len(store.indices)
        tracked = buffer in self.tracked

        def write() -> None:
            run()
            places, value = [registers[home] for home in homes[:rank]], registers[homes[rank]]
            array = self._memory(buffer, rank)
            mask = registers[homes[rank + 1]] if store.mask is not None else True
            active, on = active_lanes(places, mask, lanes)
            if active is not None:
                numerics.check_bounds(buffer.name, map(np.asarray, active), array.shape)
                if tracked:
                    self.context.touch(buffer, array, elements(active, lanes), store, True)
                array[tuple(active)] = value if on is None else np.broadcast_to(value, on.shape)[on]

        return write

    def _call(self, name: str, arguments: tuple[ir.Expression, ...]) -> _Action:
        if name == "prefetch":
            return lambda: None
        if name in _FAILURES:
            values, fail = [self.expression(argument) for argument in arguments], _FAILURES[name]
            return lambda: fail(*(int(value()) for value in values))
        assert name in self.externs, f"no extern '{name}' was given"
        function = self.externs[name]
        getters: list[Callable[[], Any]] = []
        for argument in arguments:
            getters.append(self._address(argument) if isinstance(argument, ir.Load) else self.expression(argument))
        return lambda: function(*(getter() for getter in getters)) and None

    def _address(self, load: ir.Load) -> Callable[[], Array]:
        places = [self.expression(index) for index in load.indices]

        def view() -> Array:
            array = self._memory(load.buffer, len(places))
            flat = int(np.ravel_multi_index([place() for place in places], array.shape)) if places else 0
            return array.reshape(-1)[flat:]

        return view

    def _memory(self, buffer: ir.Buffer, rank: int) -> Array:
        assert buffer in self.context.memory, f"buffer '{buffer.name}' is not allocated here"
        array = self.context.memory[buffer]
        assert array.ndim == rank, f"'{buffer.name}' has rank {array.ndim}, {rank} indices given"
        return array

    # ---- Expressions

    def expression(self, expression: ir.Expression) -> Callable[[], Any]:
        """Return the closure that gives an expression's value."""
        run, (home,) = self._tape((expression,))
        registers = self.registers

        def value() -> Any:
            run()
            return registers[home]

        return value

    def _tape(self, expressions: Sequence[ir.Expression]) -> tuple[_Action, list[int]]:
        """Return a closure that evaluates expressions, and the registers that then hold them."""
        tape: list[tuple[int, Callable[..., Any], tuple[int, ...]]] = []
        known: dict[int, int] = {}
        homes = [self._compile(expression, tape, known) for expression in expressions]
        registers = self.registers

        def run() -> None:
            for target, operation, sources in tape:
                registers[target] = operation(*[registers[source] for source in sources])

        return run, homes

    def _compile(
        self,
        expression: ir.Expression,
        tape: list[tuple[int, Callable[..., Any], tuple[int, ...]]],
        known: dict[int, int],
    ) -> int:
        """Append an expression to the tape and return its register; a shared subexpression is computed once."""
        for node in unknown(expression, known):
            if isinstance(node, ir.Variable):
                home = self.home(node)
            elif isinstance(node, ir.Constant):
                home = self.register(as_python(numerics.constant(node.value, node.type.dtype), node.type))
            else:
                home = self.register()
                tape.append((home, self._operation(node), tuple([known[id(child)] for child in children(node)])))
            known[id(node)] = home
        return known[id(expression)]

    def _operation(self, expression: ir.Expression) -> Callable[..., Any]:
        match expression:
            case ir.Binary(operator, left) if left.type == INT64 and operator in INDEX_OPERATIONS:
                return INDEX_OPERATIONS[operator]
            case ir.Load(buffer, indices, mask):
                return self._load(buffer, len(indices), mask is not None, expression.type)
            case ir.Ramp(_, stride, lanes):
                steps = np.arange(lanes, dtype=np.int64) * stride
                return lambda base: base + steps
            case ir.Select() if expression.condition.type == BOOL:
                return lambda condition, on_true, on_false: on_true if condition else on_false
            case ir.Intrinsic(name) if name.startswith("extern:"):
                return self.externs[name.removeprefix("extern:")]
            case ir.Constant() | ir.Variable():
                raise AssertionError("constants and variables are not operations")
            case _:
                function = pure(expression)
                types = tuple(child.type for child in children(expression))
                return lambda *values: as_python(
                    function(*[as_array(value, kind) for value, kind in zip(values, types, strict=True)]),
                    expression.type,
                )

    def _load(self, buffer: ir.Buffer, rank: int, masked: bool, kind: Type) -> Callable[..., Any]:
        tracked, statement = buffer in self.tracked, self.current

        def read(*operands: Any) -> Any:
            array = self._memory(buffer, rank)
            places, on = active_lanes(list(operands[:rank]), operands[rank] if masked else True, kind.lanes)
            if places is None:
                return as_python(np.zeros((kind.lanes,) if kind.lanes > 1 else (), array.dtype), kind)
            numerics.check_bounds(buffer.name, map(np.asarray, places), array.shape)
            if tracked:
                self.context.touch(buffer, array, elements(places, kind.lanes), statement, False)
            if on is None:
                return as_python(np.asarray(array[tuple(places)]), kind)
            full = np.zeros(kind.lanes, array.dtype)
            full[on] = array[tuple(places)]
            return full

        return read
