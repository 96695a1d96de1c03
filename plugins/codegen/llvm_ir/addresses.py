"""Addresses in LLVM IR: an index as a linear form, and what its lanes add to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod

from graft.core.affine.linear import Linear
from graft.core.operators.definition.build import dims
from graft.core.tensor_ir.interpreting.machine_operations import INDEX_OPERATIONS
from graft.core.tensor_ir.ir import Binary, Broadcast, Buffer, Constant, Expression, Load, Ramp, Variable
from graft.core.types import INT64, Type, element_bits
from graft.plugins.codegen.emit_analysis import element_count
from graft.plugins.codegen.index_forms import MIRRORED, Form, index_form
from graft.plugins.codegen.llvm_ir.arithmetic import binary
from graft.plugins.codegen.llvm_ir.builder import Builder, ModuleText, Value, literal, memory_type


class MemoryBuilder(Builder, ABC):
    """A builder that knows where buffers are; what values expressions have is its subclass's to say."""

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self.forms: dict[Variable, Form | None] = {}
        """The linear forms of let-bound vectors of indices."""
        self.pointers: dict[Buffer, str] = {}
        self.strides: dict[Buffer, list[int] | None] = {}
        """The strides of buffers that are asked for often: of a constant shape, so that they are numbers."""
        self._dummies: dict[tuple[str, str], str] = {}

    @abstractmethod
    def value(self, expression: Expression) -> Value:
        """Return the value of an expression."""

    def load_if(self, condition: str, memory: str, address: str, align: int) -> str:
        """Return an element where a condition holds, else zero, which is read from elsewhere."""
        safe = self.let(f"select i1 {condition}, ptr {address}, ptr {self.dummy(memory, 'zero')}")
        return self.let(f"load {memory}, ptr {safe}, align {align}")

    def store_if(self, condition: str, memory: str, value: str, address: str, align: int) -> None:
        """Store an element where a condition holds, else elsewhere."""
        safe = self.let(f"select i1 {condition}, ptr {address}, ptr {self.dummy(memory, 'sink')}")
        self.emit(f"store {memory} {value}, ptr {safe}, align {align}")

    def alignment(self, buffer: Buffer, offset: Form) -> int:
        """Return what is known of the alignment, in bytes, of the element at an offset: that of its type."""
        return element_bits(buffer.dtype) // 8

    def dummy(self, llvm_type: str, purpose: str) -> str:
        """Return a stack slot for switched-off scalar accesses: ``zero`` is read, ``sink`` written."""
        key = (llvm_type, purpose)
        if key not in self._dummies:
            self._dummies[key] = self.let_entry(f"alloca {llvm_type}, align 8")
            if purpose == "zero":
                self.entry.append(f"  store {llvm_type} zeroinitializer, ptr {self._dummies[key]}, align 8")
        return self._dummies[key]


def linear(emitter: MemoryBuilder, expression: Expression) -> Form | None:
    """Return the form of an int64 expression over LLVM's operands, None for a vector that has no constant step."""
    return index_form(expression, emitter.forms.get, lambda atom: _of_value(emitter.value(atom)))


def _of_value(value: Value) -> Form:
    return Linear(terms={value.text: 1}) if value.integer is None else Linear(value.integer)


def scalar(emitter: MemoryBuilder, form: Form, with_constant: bool = True) -> Value:
    """Return the value of a linear form (of lane 0); larger factors, which are outer loops', come first."""
    total: Value | None = None
    for operand, factor in sorted(form.terms.items(), key=lambda term: (-abs(term[1]), term[0])):
        product = operand if factor == 1 else emitter.let(f"mul nsw i64 {operand}, {factor}")
        total = Value(product if total is None else emitter.let(f"add nsw i64 {total.text}, {product}"), INT64)
    if total is None:
        return Value(str(form.constant if with_constant else 0), INT64)
    if form.constant and with_constant:
        return Value(emitter.let(f"add nsw i64 {total.text}, {form.constant}"), INT64)
    return total


def row_major_strides(emitter: MemoryBuilder, buffer: Buffer) -> list[Value]:
    """Return the element strides of a buffer's dimensions."""
    numbers = constant_strides(emitter, buffer)
    if numbers is not None:
        return [Value(str(number), INT64) for number in numbers]
    if buffer.strides is not None:
        return [emitter.value(stride) for stride in buffer.strides]
    strides = [Value("1", INT64)]
    for extent in reversed(buffer.shape[1:]):
        strides.append(binary(emitter, "mul", strides[-1], emitter.value(extent)))
    return strides[::-1][: len(buffer.shape)]


def constant_strides(emitter: MemoryBuilder, buffer: Buffer) -> list[int] | None:
    """Return the strides of a contiguous buffer of constant shape, None for another."""
    known = emitter.strides
    if buffer not in known:
        shape = None if element_count(buffer) is None else dims(buffer)
        known[buffer] = None if shape is None else [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return known[buffer]


def offset_of(emitter: MemoryBuilder, buffer: Buffer, indices: Sequence[Expression]) -> Form | None:
    """Return the linear form of an element's offset in its buffer, None for a vector that has no constant step."""
    total: Form = Linear()
    numbers = constant_strides(emitter, buffer)
    if numbers is not None:
        for index, number in zip(indices, numbers, strict=True):
            form = linear(emitter, index)
            if form is None:
                return None
            total = total.plus(form, number)
        return total
    for index, stride in zip(indices, row_major_strides(emitter, buffer), strict=True):
        form = linear(emitter, index)
        if form is None:
            return None
        if stride.integer is not None:
            total = total.plus(form, stride.integer)
        elif form.lane == 0:
            total = total.plus(_of_value(binary(emitter, "mul", scalar(emitter, form), stride)))
        else:
            return None
    return total


def pointer(emitter: MemoryBuilder, buffer: Buffer, offset: Form) -> str:
    """Return the address of the element at ``offset`` (its lane 0)."""
    base = emitter.pointers[buffer]
    element = memory_type(Type(buffer.dtype))
    if offset.terms:
        key = (base, tuple(sorted(offset.terms.items())))
        known = emitter.find(key)
        if known is None:
            index = scalar(emitter, offset, with_constant=False).text
            known = emitter.let(f"getelementptr inbounds {element}, ptr {base}, i64 {index}")
            if emitter.module.target.arch == "wasm32":
                known = emitter.intrinsic("strip.invariant.group", "ptr", [("ptr", known)], ["ptr"])
            emitter.keep(key, known)
        base = known
    if not offset.constant:
        return base
    # WebAssembly adds offsets without wrapping: where that is the same, a load or store takes a constant itself.
    flags = "inbounds nuw" if emitter.module.is_plain and offset.constant > 0 else "inbounds"
    return emitter.let(f"getelementptr {flags} {element}, ptr {base}, i64 {offset.constant}")


def address_of(emitter: MemoryBuilder, expression: Load) -> str:
    """Return the address of the element that a scalar load would read."""
    offset = offset_of(emitter, expression.buffer, expression.indices)
    assert offset is not None, "the address of a vector access"
    return pointer(emitter, expression.buffer, offset)


def spread(emitter: MemoryBuilder, expression: Expression, lanes: int) -> tuple[Form, list[int]] | None:
    """Return an index as what all lanes share and what each adds, None where that is not known now."""
    known = constant_lanes(expression)
    if known is not None:
        return Linear(), known * (lanes // len(known))
    if expression.type.lanes == 1 or isinstance(expression, Broadcast | Ramp):
        form = linear(emitter, expression)
        if form is None:
            return None
        return form.plus(Linear(lane=-form.lane)), [form.lane * lane for lane in range(lanes)]
    match expression:
        case Binary("add" | "sub" as operator, left, right):
            factor = 1 if operator == "add" else -1
            first, second = spread(emitter, left, lanes), spread(emitter, right, lanes)
            if first is None or second is None:
                return None
            return first[0].plus(second[0], factor), [
                one + factor * other for one, other in zip(first[1], second[1], strict=True)
            ]
        case Binary("mul", left, right):
            for one, other in ((left, right), (right, left)):
                factors, moved = constant_lanes(one), spread(emitter, other, lanes)
                if factors is not None and moved is not None and len(set(factors)) == 1:
                    return moved[0].times(factors[0]), [factors[0] * step for step in moved[1]]
    return None


def constant_lanes(expression: Expression) -> list[int] | None:
    """Return the numbers in the lanes of an index that depends on nothing else."""
    match expression:
        case Constant(number, _):
            return [int(number)]
        case Broadcast(Constant(number, _), lanes):
            return [int(number)] * lanes
        case Ramp(Constant(number, _), stride, lanes):
            return [int(number) + stride * lane for lane in range(lanes)]
        case Binary("add" | "sub" | "mul" | "div" | "mod" | "min" | "max" as operator, left, right):
            first, second = constant_lanes(left), constant_lanes(right)
            if first is None or second is None or (operator in ("div", "mod") and (min(second) <= 0 or min(first) < 0)):
                return None
            lanes = max(len(first), len(second))
            pairs = zip(first * (lanes // len(first)), second * (lanes // len(second)), strict=True)
            return [int(INDEX_OPERATIONS[operator](one, other)) for one, other in pairs]
    return None


def counting_mask(emitter: MemoryBuilder, expression: Binary) -> Value | None:
    """Return the mask of ``ramp < bound`` and its like, None for other expressions.

    The first lanes up to a count, or from it on: one comparison of small integers instead of several of int64.
    """
    operator: str = expression.operator
    lanes = expression.left.type.lanes
    if lanes == 1 or operator not in MIRRORED or expression.left.type.dtype != "int64":
        return None
    left, right = linear(emitter, expression.left), linear(emitter, expression.right)
    if left is None or right is None:
        return None
    apart = left.plus(right, -1)
    if apart.lane < 0:
        operator, apart = MIRRORED[operator], apart.times(-1)
    if apart.lane == 0:
        return None
    # lane * n + rest < 0 exactly for n < ceil(-rest / lane)
    least = Linear[str](apart.lane - 1 + (operator in ("le", "gt")))
    count = least.plus(Linear(apart.constant, apart.terms), -1)
    inside = operator in ("lt", "le")
    type = Type("bool", lanes)
    number = _count(emitter, count, apart.lane, lanes)
    if number.integer is not None:
        bits = ", ".join(f"i1 {str((lane < number.integer) == inside).lower()}" for lane in range(lanes))
        always = all((lane < number.integer) == inside for lane in range(lanes))
        return Value(literal(True, type) if always else f"<{bits}>", type)
    small = "i32" if lanes <= 16 else "i8" if lanes <= 64 else "i16"
    narrow = Value(
        emitter.let(f"trunc i64 {number.text} to {small}"), Type("uint32" if small == "i32" else f"uint{small[1:]}")
    )
    steps = ", ".join(f"{small} {lane}" for lane in range(lanes))
    comparison = "ult" if inside else "uge"
    bound = emitter.splat(narrow, lanes).text
    return Value(emitter.let(f"icmp {comparison} <{lanes} x {small}> <{steps}>, {bound}"), type)


def _count(emitter: MemoryBuilder, count: Form, stride: int, lanes: int) -> Value:
    """Return ``count // stride`` clamped to ``[0, lanes]``."""
    number = scalar(emitter, count)
    if number.integer is not None:
        return Value(str(min(max(number.integer // stride, 0), lanes)), INT64)
    positive = emitter.intrinsic("smax", "i64", [("i64", number.text), ("i64", "0")], ["i64"])
    if stride != 1:
        positive = emitter.let(f"udiv i64 {positive}, {stride}")
    return Value(emitter.intrinsic("umin", "i64", [("i64", positive), ("i64", str(lanes))], ["i64"]), INT64)
