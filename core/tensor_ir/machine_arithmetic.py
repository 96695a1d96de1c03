"""A machine that runs scheduled functions one iteration after another.

Nothing is reordered or skipped, so a result that differs from the stages' is a fault of the schedule. To bring faults
to light, parallel loops run backwards, memory that nothing wrote holds NaN or odd numbers, and every access is
checked against its buffer. A statement becomes a closure and an expression a tape of operations over registers; there,
int64 and bool scalars are Python's own (index arithmetic is most of the work) and all else is NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

import numpy as np

from graft.core.tensor_ir import numerics
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Bitcast,
    Block,
    Broadcast,
    Buffer,
    CallExtern,
    Cast,
    Constant,
    Expression,
    For,
    Function,
    Horizontal,
    If,
    Intrinsic,
    Let,
    Load,
    Ramp,
    Select,
    Shuffle,
    Statement,
    Store,
    Unary,
    Variable,
    access_lanes,
)
from graft.core.tensor_ir.numerics import Array
from graft.core.tensor_ir.visit import children, unknown
from graft.core.types import BOOL, INT64, Type

Extern: TypeAlias = Callable[..., Any]
_Action: TypeAlias = Callable[[], None]


def run_function(
    function: Function,
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
    shapes = outputs or [tuple(_fixed(extent) for extent in buffer.shape) for buffer in function.output_buffers]
    results = [poisoned(buffer.dtype, shape) for buffer, shape in zip(function.output_buffers, shapes, strict=True)]
    for buffer, array in zip(function.parameters, [*inputs, *results], strict=True):
        machine.bind(buffer, np.asarray(array))
    with np.errstate(all="ignore"):
        machine.statement(function.body)()
    return results


def _fail_index(index: int, axis: int, extent: int, low: int, high: int) -> None:
    raise IndexError(
        f"index {index} is out of range: axis {axis} has extent {extent}, so that {low} to {high} are legal"
    )


def poisoned(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return an array of undefined contents: NaN for floats, the byte 0xA5 for integers, True for bool."""
    kind = numerics.storage(dtype)
    if dtype == "bool":
        return np.ones(shape, kind)
    if kind.kind in "iu":
        return np.full(shape, int.from_bytes(b"\xa5" * kind.itemsize, "little"), f"u{kind.itemsize}").view(kind)
    return np.full(shape, np.nan, kind)


def _fixed(extent: Expression) -> int:
    assert isinstance(extent, Constant), "give the shapes of outputs that are symbolic"
    return int(extent.value)


class _Machine:
    """Compiles statements to closures over one list of registers."""

    def __init__(self, externs: Mapping[str, Extern]) -> None:
        self.externs = externs
        self.memory: dict[Buffer, Array] = {}
        self.registers: list[Any] = []
        self.homes: dict[Variable, int] = {}

    def bind(self, buffer: Buffer, array: Array) -> None:
        """Give a parameter its memory and symbolic extents their values."""
        assert array.ndim == len(buffer.shape), f"'{buffer.name}' has rank {len(buffer.shape)}, the array {array.ndim}"
        assert array.dtype == numerics.storage(buffer.dtype), f"'{buffer.name}' is {buffer.dtype}, not {array.dtype}"
        for extent, size in zip(buffer.shape, array.shape, strict=True):
            if isinstance(extent, Variable):
                self.registers[self.home(extent)] = size
            elif isinstance(extent, Constant):
                assert extent.value == size, f"'{buffer.name}' has shape {array.shape}, expected {extent.value}"
        self.memory[buffer] = array

    def register(self, value: Any = None) -> int:
        """Return a fresh register."""
        self.registers.append(value)
        return len(self.registers) - 1

    def home(self, variable: Variable) -> int:
        """Return the register of a variable."""
        if variable not in self.homes:
            self.homes[variable] = self.register()
        return self.homes[variable]

    # ---- Statements

    def statement(self, statement: Statement) -> _Action:
        """Return the closure that executes a statement."""
        match statement:
            case Store():
                return self._store(statement)
            case For():
                return self._loop(statement)
            case If(condition, then_body, else_body):
                test, then_action = self.expression(condition), self.statement(then_body)
                else_action = self.statement(else_body) if else_body is not None else lambda: None
                return lambda: then_action() if test() else else_action()
            case Let(variable, value, body):
                return self._let(variable, value, body)
            case Allocate(buffer, body):
                return self._allocate(buffer, body)
            case Block(statements):
                actions = [self.statement(inner) for inner in statements]

                def run_all() -> None:
                    for action in actions:
                        action()

                return run_all
            case CallExtern(name, arguments):
                return self._call(name, arguments)
            case _:
                assert_never(statement)

    def _loop(self, loop: For) -> _Action:
        registers, home = self.registers, self.home(loop.variable)
        extent, body, backwards = self.expression(loop.extent), self.statement(loop.body), loop.kind == "parallel"

        def run() -> None:
            count = extent()
            for index in reversed(range(count)) if backwards else range(count):
                registers[home] = index
                body()

        return run

    def _let(self, variable: Variable, value: Expression, body: Statement) -> _Action:
        registers, home = self.registers, self.home(variable)
        compute, inner = self.expression(value), self.statement(body)

        def run() -> None:
            registers[home] = compute()
            inner()

        return run

    def _allocate(self, buffer: Buffer, body: Statement) -> _Action:
        extents, inner = [self.expression(extent) for extent in buffer.shape], self.statement(body)

        def run() -> None:
            self.memory[buffer] = poisoned(buffer.dtype, tuple(extent() for extent in extents))
            inner()
            del self.memory[buffer]

        return run

    def _store(self, store: Store) -> _Action:
        lanes = access_lanes(store.indices, store.mask)
        operands = (*store.indices, store.value, *(() if store.mask is None else (store.mask,)))
        run, homes = self._tape(operands)
        registers, buffer, rank = self.registers, store.buffer, len(store.indices)

        def write() -> None:
            run()
            places, value = [registers[home] for home in homes[:rank]], registers[homes[rank]]
            array = self._memory(buffer, rank)
            mask = registers[homes[rank + 1]] if store.mask is not None else True
            active, on = _active(places, mask, lanes)
            if active is not None:
                numerics.check_bounds(buffer.name, map(np.asarray, active), array.shape)
                array[tuple(active)] = value if on is None else value[on]

        return write

    def _call(self, name: str, arguments: tuple[Expression, ...]) -> _Action:
        if name == "prefetch":
            return lambda: None
        if name == "fail_index":
            values = [self.expression(argument) for argument in arguments]
            return lambda: _fail_index(*(int(value()) for value in values))
        assert name in self.externs, f"no extern '{name}' was given"
        function = self.externs[name]
        getters: list[Callable[[], Any]] = []
        for argument in arguments:
            getters.append(self._address(argument) if isinstance(argument, Load) else self.expression(argument))
        return lambda: function(*(getter() for getter in getters)) and None

    def _address(self, load: Load) -> Callable[[], Array]:
        places = [self.expression(index) for index in load.indices]

        def view() -> Array:
            array = self._memory(load.buffer, len(places))
            flat = int(np.ravel_multi_index([place() for place in places], array.shape)) if places else 0
            return array.reshape(-1)[flat:]

        return view

    def _memory(self, buffer: Buffer, rank: int) -> Array:
        assert buffer in self.memory, f"buffer '{buffer.name}' is not allocated here"
        array = self.memory[buffer]
        assert array.ndim == rank, f"'{buffer.name}' has rank {array.ndim}, {rank} indices given"
        return array

    # ---- Expressions

    def expression(self, expression: Expression) -> Callable[[], Any]:
        """Return the closure that gives an expression's value."""
        run, (home,) = self._tape((expression,))
        registers = self.registers

        def value() -> Any:
            run()
            return registers[home]

        return value

    def _tape(self, expressions: Sequence[Expression]) -> tuple[_Action, list[int]]:
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
        expression: Expression,
        tape: list[tuple[int, Callable[..., Any], tuple[int, ...]]],
        known: dict[int, int],
    ) -> int:
        """Append an expression to the tape and return its register; a shared subexpression is computed once."""
        for node in unknown(expression, known):
            if isinstance(node, Variable):
                home = self.home(node)
            elif isinstance(node, Constant):
                home = self.register(_python(numerics.constant(node.value, node.type.dtype), node.type))
            else:
                home = self.register()
                tape.append((home, self._operation(node), tuple([known[id(child)] for child in children(node)])))
            known[id(node)] = home
        return known[id(expression)]

    def _operation(self, expression: Expression) -> Callable[..., Any]:
        match expression:
            case Binary(operator, left) if left.type == INT64 and operator in _INDEX_OPERATIONS:
                return _INDEX_OPERATIONS[operator]
            case Load(buffer, indices, mask):
                return self._load(buffer, len(indices), mask is not None, expression.type)
            case Ramp(_, stride, lanes):
                steps = np.arange(lanes, dtype=np.int64) * stride
                return lambda base: base + steps
            case Select() if expression.condition.type == BOOL:
                return lambda condition, on_true, on_false: on_true if condition else on_false
            case Intrinsic(name) if name.startswith("extern:"):
                return self.externs[name.removeprefix("extern:")]
            case Constant() | Variable():
                raise AssertionError("constants and variables are not operations")
            case _:
                function = _pure(expression)
                types = tuple(child.type for child in children(expression))
                return lambda *values: _python(
                    function(*[_array(value, kind) for value, kind in zip(values, types, strict=True)]), expression.type
                )

    def _load(self, buffer: Buffer, rank: int, masked: bool, kind: Type) -> Callable[..., Any]:
        def read(*operands: Any) -> Any:
            array = self._memory(buffer, rank)
            places, on = _active(list(operands[:rank]), operands[rank] if masked else True, kind.lanes)
            if places is None:
                return _python(np.zeros((kind.lanes,) if kind.lanes > 1 else (), array.dtype), kind)
            numerics.check_bounds(buffer.name, map(np.asarray, places), array.shape)
            if on is None:
                return _python(np.asarray(array[tuple(places)]), kind)
            full = np.zeros(kind.lanes, array.dtype)
            full[on] = array[tuple(places)]
            return full

        return read


def _active(places: list[Any], mask: Any, lanes: int) -> tuple[list[Any] | None, Array | None]:
    """Return the indices of the lanes that are on (None if there are none), and which those are (None for all)."""
    if mask is True or (mask is not False and np.all(mask)):
        return ([np.broadcast_to(place, lanes) for place in places] if lanes > 1 else places), None
    if not np.any(mask):
        return None, None
    return [np.broadcast_to(place, lanes)[mask] for place in places], mask


def _wrap(value: int) -> int:
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _truncating(left: int, right: int) -> int:
    if right == 0:
        return 0
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_INDEX_OPERATIONS: dict[str, Callable[[int, int], int | bool]] = {
    "add": lambda left, right: _wrap(left + right),
    "sub": lambda left, right: _wrap(left - right),
    "mul": lambda left, right: _wrap(left * right),
    "div": lambda left, right: _wrap(_truncating(left, right)),
    "mod": lambda left, right: left - _truncating(left, right) * right if right else 0,
    "min": min,
    "max": max,
    "eq": lambda left, right: left == right,
    "ne": lambda left, right: left != right,
    "lt": lambda left, right: left < right,
    "le": lambda left, right: left <= right,
    "gt": lambda left, right: left > right,
    "ge": lambda left, right: left >= right,
}


def _pure(expression: Expression) -> Callable[..., Array]:
    """Return the function on arrays behind an operation that touches no memory."""
    match expression:
        case Broadcast(_, lanes):
            return lambda value: np.repeat(np.reshape(value, 1), lanes)
        case Unary():
            return lambda array: numerics.unary(expression.operator, array, expression.type.dtype)
        case Binary():
            return lambda left, right: numerics.binary(expression.operator, left, right)
        case Select():
            return lambda condition, on_true, on_false: np.asarray(np.where(condition, on_true, on_false))
        case Cast(value, dtype):
            return lambda array: numerics.cast(array, value.type.dtype, dtype)
        case Bitcast(_, dtype):
            return lambda array: numerics.bitcast(array, dtype)
        case Intrinsic(name, _, kind):
            return lambda *arrays: numerics.intrinsic(name, arrays, kind.dtype)
        case Shuffle(_, lanes):
            return lambda *arrays: np.concatenate([array.reshape(-1) for array in arrays])[list(lanes)].reshape(
                (len(lanes),) if len(lanes) > 1 else ()
            )
        case Horizontal():
            return lambda array: numerics.reduce(expression.operator, array.reshape(-1), (0,))
        case Constant() | Variable() | Load() | Ramp():
            raise AssertionError(f"{type(expression).__name__} is not a pure operation")
        case _:
            assert_never(expression)


def _array(value: Any, kind: Type) -> Array:
    return np.asarray(value, np.int64 if kind.dtype == "int64" else None)


def _python(value: Array, kind: Type) -> Any:
    """Return int64 and bool scalars as Python's own, everything else as it is."""
    if kind == INT64:
        return int(value)
    return bool(value) if kind == BOOL else value
