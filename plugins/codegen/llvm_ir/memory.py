"""Loads, stores and addresses in LLVM IR.

An index is taken apart into a linear form over what cannot be taken apart (loop indices, quotients): accesses that
differ by a constant then share one address computation, and a constant step from lane to lane is seen whatever way it
was written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from graft.core.tensor_ir.ir import Binary, Broadcast, Buffer, Constant, Expression, Load, Ramp, Variable
from graft.core.types import INT64, Type, element_bits
from graft.plugins.codegen.emit_analysis import element_count
from graft.plugins.codegen.llvm_ir.arithmetic import binary
from graft.plugins.codegen.llvm_ir.builder import Builder, ModuleText, Value, literal, memory_type, register_type

MAX_STRIDE = 4
"""Elements at most so far apart are loaded through whole vectors, others are gathered."""
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(slots=True)
class Linear:
    """The int64 number ``sum(factor * operand) + constant + lane * lane_number``."""

    terms: dict[str, int] = field(default_factory=dict)
    constant: int = 0
    lane: int = 0

    def add(self, other: Linear, factor: int) -> None:
        """Add ``factor * other`` in place."""
        for operand, weight in other.terms.items():
            total = self.terms.pop(operand, 0) + weight * factor
            if total:
                self.terms[operand] = total
        self.constant += other.constant * factor
        self.lane += other.lane * factor


class MemoryBuilder(Builder, ABC):
    """A builder that knows where buffers are; what values expressions have is its subclass's to say."""

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self.forms: dict[Variable, Linear | None] = {}
        """The linear forms of let-bound vectors of indices."""
        self.pointers: dict[Buffer, str] = {}
        self.strides: dict[Buffer, list[Value]] = {}
        """The strides of buffers of constant shape, which are numbers everywhere."""
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

    def alignment(self, buffer: Buffer, offset: Linear) -> int:
        """Return what is known of the alignment, in bytes, of the element at an offset: that of its type."""
        return _bytes(buffer)

    def dummy(self, llvm_type: str, purpose: str) -> str:
        """Return a stack slot for switched-off scalar accesses: ``zero`` is read, ``sink`` written."""
        key = (llvm_type, purpose)
        if key not in self._dummies:
            self._dummies[key] = self.let_entry(f"alloca {llvm_type}, align 8")
            if purpose == "zero":
                self.entry.append(f"  store {llvm_type} zeroinitializer, ptr {self._dummies[key]}, align 8")
        return self._dummies[key]


def linear(emitter: MemoryBuilder, expression: Expression) -> Linear | None:
    """Return the linear form of an int64 expression, None for a vector that has no constant step."""
    match expression:
        case Ramp(base, stride, _):
            form = linear(emitter, base)
            assert form is not None, "the base of a ramp is a scalar"
            form.lane += stride
            return form
        case Broadcast(inner, _):
            return linear(emitter, inner)
        case Constant(number, _):
            return Linear(constant=int(number))
        case Variable() if expression.type.lanes > 1:
            known = emitter.forms.get(expression)
            return None if known is None else Linear(dict(known.terms), known.constant, known.lane)
        case Binary("add" | "sub" as operator, left, right):
            first, second = linear(emitter, left), linear(emitter, right)
            if first is None or second is None:
                return None
            first.add(second, 1 if operator == "add" else -1)
            return first
        case Binary("mul", left, right):
            first, second = linear(emitter, left), linear(emitter, right)
            if first is not None and second is not None:
                for factor, form in ((first, second), (second, first)):
                    if not factor.terms and not factor.lane:
                        product = Linear()
                        product.add(form, factor.constant)
                        return product
    if expression.type.lanes > 1:
        return None
    value = emitter.value(expression)
    return Linear(constant=value.integer) if value.integer is not None else Linear({value.text: 1})


def scalar(emitter: MemoryBuilder, form: Linear, with_constant: bool = True) -> Value:
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
    if buffer in emitter.strides:
        return emitter.strides[buffer]
    if buffer.strides is not None:
        return [emitter.value(stride) for stride in buffer.strides]
    strides = [Value("1", INT64)]
    for extent in reversed(buffer.shape[1:]):
        strides.append(binary(emitter, "mul", strides[-1], emitter.value(extent)))
    strides = strides[::-1][: len(buffer.shape)]
    if element_count(buffer) is not None:
        emitter.strides[buffer] = strides
    return strides


def offset_of(emitter: MemoryBuilder, buffer: Buffer, indices: Sequence[Expression]) -> Linear | None:
    """Return the linear form of an element's offset in its buffer, None for a vector that has no constant step."""
    total = Linear()
    for index, stride in zip(indices, row_major_strides(emitter, buffer), strict=True):
        form = linear(emitter, index)
        if form is None:
            return None
        if stride.integer is not None:
            total.add(form, stride.integer)
        elif form.lane == 0:
            product = binary(emitter, "mul", scalar(emitter, form), stride)
            total.add(Linear({product.text: 1}) if product.integer is None else Linear(constant=product.integer), 1)
        else:
            return None
    return total


def pointer(emitter: MemoryBuilder, buffer: Buffer, offset: Linear) -> str:
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


def _pointers(emitter: MemoryBuilder, buffer: Buffer, indices: Sequence[Expression], lanes: int) -> str:
    """Return the vector of addresses of a gather or scatter; 32-bit offsets where they suffice are twice as fast."""
    total: Value | None = None
    for index, stride in zip(indices, row_major_strides(emitter, buffer), strict=True):
        position = emitter.splat(emitter.value(index), lanes)
        product = position
        if stride.integer != 1:
            product = binary(emitter, "mul", position, emitter.splat(stride, lanes))
        total = product if total is None else binary(emitter, "add", total, product)
    assert total is not None, "a buffer without dimensions has no vector access"
    kind, text = register_type(total.type), total.text
    count = element_count(buffer)
    if count is not None and count < 2**31:
        narrow = kind.replace("i64", "i32")
        text, kind = emitter.let(f"trunc {kind} {text} to {narrow}"), narrow
    element = memory_type(Type(buffer.dtype))
    return emitter.let(f"getelementptr inbounds {element}, ptr {emitter.pointers[buffer]}, {kind} {text}")


def _mask(emitter: MemoryBuilder, mask: Expression | None, lanes: int) -> Value | None:
    """Return the mask in ``lanes`` lanes, None if it is absent or always true."""
    if mask is None:
        return None
    value = emitter.value(mask)
    if value.text in ("true", literal(True, value.type)):
        return None
    return emitter.splat(value, lanes)


def _bytes(buffer: Buffer) -> int:
    return element_bits(buffer.dtype) // 8


def load(emitter: MemoryBuilder, expression: Load) -> Value:
    """Emit a load: scalar, contiguous vector, splat or gather, each with or without a mask."""
    type = expression.type
    mask = _mask(emitter, expression.mask, type.lanes)
    offset = offset_of(emitter, expression.buffer, expression.indices)
    memory, align = memory_type(type), _bytes(expression.buffer)
    if offset is not None and (type.lanes == 1 or offset.lane == 1):
        address = pointer(emitter, expression.buffer, offset)
        align = emitter.alignment(expression.buffer, offset)
        if mask is None:
            text = emitter.let(f"load {memory}, ptr {address}, align {align}")
        elif type.lanes == 1:
            text = emitter.load_if(mask.text, memory, address, align)
        else:
            text = _masked_load(emitter, memory, address, mask, align)
    elif offset is not None and offset.lane == 0 and mask is None:
        element = memory_type(type.with_lanes(1))
        address = pointer(emitter, expression.buffer, offset)
        one = Value(emitter.let(f"load {element}, ptr {address}, align {align}"), _stored(type).with_lanes(1))
        text = emitter.splat(one, type.lanes).text
    elif offset is not None and 2 <= offset.lane <= MAX_STRIDE:
        text = _strided(emitter, pointer(emitter, expression.buffer, offset), offset.lane, type, mask, align)
    else:
        addresses = _pointers(emitter, expression.buffer, expression.indices, type.lanes)
        text = _gather(emitter, memory, addresses, mask, type, align)
    value = Value(text, _stored(type))
    return emitter.compare("icmp ne", value, 0) if type.dtype == "bool" else value


def _stored(type: Type) -> Type:
    return Type("uint8", type.lanes) if type.dtype == "bool" else type


def _masked_load(emitter: MemoryBuilder, memory: str, address: str, mask: Value, align: int) -> str:
    arguments = [(f"ptr align {align}", address), (register_type(mask.type), mask.text), (memory, "zeroinitializer")]
    return emitter.intrinsic("masked.load", memory, arguments, [memory, "ptr"])


def _strided(emitter: MemoryBuilder, address: str, stride: int, type: Type, mask: Value | None, align: int) -> str:
    """Load every ``stride``-th element through whole vectors, of which only the wanted elements are switched on."""
    lanes, span = type.lanes, type.lanes * stride
    memory, condition = memory_type(type.with_lanes(span)), register_type(Type("bool", lanes))
    switch = literal(True, Type("bool", lanes)) if mask is None else mask.text
    spread = ", ".join(f"i32 {lane // stride if lane % stride == 0 else lanes}" for lane in range(span))
    wide = emitter.let(f"shufflevector {condition} {switch}, {condition} zeroinitializer, <{span} x i32> <{spread}>")
    loaded = _masked_load(emitter, memory, address, Value(wide, Type("bool", span)), align)
    chosen = ", ".join(f"i32 {lane * stride}" for lane in range(lanes))
    return emitter.let(f"shufflevector {memory} {loaded}, {memory} poison, <{lanes} x i32> <{chosen}>")


def _all_on(lanes: int) -> Value:
    type = Type("bool", lanes)
    return Value(literal(True, type), type)


def _gather(emitter: MemoryBuilder, memory: str, addresses: str, mask: Value | None, type: Type, align: int) -> str:
    mask, pointers = mask or _all_on(type.lanes), f"<{type.lanes} x ptr>"
    switches = (register_type(mask.type), mask.text)
    arguments = [(f"{pointers} align {align}", addresses), switches, (memory, "zeroinitializer")]
    return emitter.intrinsic("masked.gather", memory, arguments, [memory, pointers])


def store(
    emitter: MemoryBuilder, buffer: Buffer, indices: Sequence[Expression], value: Value, mask: Expression | None
) -> None:
    """Emit a store: scalar, contiguous vector or scatter, each with or without a mask."""
    lanes = max(max((index.type.lanes for index in indices), default=1), 1 if mask is None else mask.type.lanes)
    type = value.type.with_lanes(lanes)
    value = emitter.splat(value, lanes)
    condition = _mask(emitter, mask, lanes)
    memory, align = memory_type(type), _bytes(buffer)
    text = (emitter.convert("zext", value, _stored(type)) if type.dtype == "bool" else value).text
    offset = offset_of(emitter, buffer, indices)
    if offset is None or (lanes > 1 and offset.lane != 1):
        addresses = _pointers(emitter, buffer, indices, lanes)
        condition, pointers = condition or _all_on(lanes), f"<{lanes} x ptr>"
        arguments = [(memory, text), (f"{pointers} align {align}", addresses), (f"<{lanes} x i1>", condition.text)]
        emitter.intrinsic("masked.scatter", "void", arguments, [memory, pointers])
        return
    address = pointer(emitter, buffer, offset)
    align = emitter.alignment(buffer, offset)
    if condition is None:
        emitter.emit(f"store {memory} {text}, ptr {address}, align {align}")
    elif lanes == 1:
        emitter.store_if(condition.text, memory, text, address, align)
    elif (only := _only_lane(condition)) is not None:
        scalar = memory_type(type.with_lanes(1))
        element = emitter.let(f"extractelement {memory} {text}, i64 {only}")
        place = emitter.let(f"getelementptr {scalar}, ptr {address}, i64 {only}")
        emitter.emit(f"store {scalar} {element}, ptr {place}, align {align}")
    else:
        mask_text = _unfolded(emitter, condition.text, lanes) if _may_be_cut(emitter, type) else condition.text
        arguments = [(memory, text), (f"ptr align {align}", address), (f"<{lanes} x i1>", mask_text)]
        emitter.intrinsic("masked.store", "void", arguments, [memory, "ptr"])


def _may_be_cut(emitter: MemoryBuilder, type: Type) -> bool:
    """Return whether LLVM may join a truncation to this type with the store of it.

    LLVM 22 stores all bits before the truncation (of vpmovdw and its like) where the mask leaves one lane on, and so
    writes over the elements behind it.
    """
    is_float = type.dtype in ("float32", "float64")
    return "avx512f" in emitter.module.target.machine.features and element_bits(type.dtype) < 64 and not is_float


def _unfolded(emitter: MemoryBuilder, mask: str, lanes: int) -> str:
    """Return a mask of which LLVM does not know the lanes, should it find later that they are constant."""
    word = "i64" if lanes > 32 else "i32"
    bits = emitter.let(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
    wide = bits if word == f"i{lanes}" else emitter.let(f"zext i{lanes} {bits} to {word}")
    hidden = emitter.let(f'call {word} asm "", "=r,0"({word} {wide})')
    narrow = hidden if word == f"i{lanes}" else emitter.let(f"trunc {word} {hidden} to i{lanes}")
    return emitter.let(f"bitcast i{lanes} {narrow} to <{lanes} x i1>")


def _only_lane(mask: Value) -> int | None:
    """Return the lane that a literal mask leaves on, None if there is not exactly one."""
    lanes = mask.text[1:-1].split(", ") if mask.text.startswith("<") else []
    return lanes.index("i1 true") if lanes.count("i1 true") == 1 else None


def address_of(emitter: MemoryBuilder, expression: Load) -> str:
    """Return the address of the element that a scalar load would read."""
    offset = offset_of(emitter, expression.buffer, expression.indices)
    assert offset is not None, "the address of a vector access"
    return pointer(emitter, expression.buffer, offset)


def counting_mask(emitter: MemoryBuilder, expression: Binary) -> Value | None:
    """Return the mask of ``ramp < bound`` and its like, None for other expressions.

    The first lanes up to a count, or from it on: one comparison of small integers instead of several of int64.
    """
    operator: str = expression.operator
    lanes = expression.left.type.lanes
    if lanes == 1 or operator not in _MIRRORED or expression.left.type.dtype != "int64":
        return None
    left, right = linear(emitter, expression.left), linear(emitter, expression.right)
    if left is None or right is None:
        return None
    left.add(right, -1)
    if left.lane < 0:
        operator, negated = _MIRRORED[operator], Linear()
        negated.add(left, -1)
        left = negated
    if left.lane == 0:
        return None
    # lane * n + rest < 0 exactly for n < ceil(-rest / lane)
    count = Linear()
    count.add(Linear(dict(left.terms), left.constant), -1)
    count.constant += left.lane - 1 + (operator in ("le", "gt"))
    inside = operator in ("lt", "le")
    type = Type("bool", lanes)
    number = _count(emitter, count, left.lane, lanes)
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


def _count(emitter: MemoryBuilder, count: Linear, stride: int, lanes: int) -> Value:
    """Return ``count // stride`` clamped to ``[0, lanes]``."""
    number = scalar(emitter, count)
    if number.integer is not None:
        return Value(str(min(max(number.integer // stride, 0), lanes)), INT64)
    positive = emitter.intrinsic("smax", "i64", [("i64", number.text), ("i64", "0")], ["i64"])
    if stride != 1:
        positive = emitter.let(f"udiv i64 {positive}, {stride}")
    return Value(emitter.intrinsic("umin", "i64", [("i64", positive), ("i64", str(lanes))], ["i64"]), INT64)
