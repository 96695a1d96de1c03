"""Loads and stores in LLVM IR: whole vectors wherever lanes lie in a pattern that is known, else one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graft.core.affine.linear import Linear
from graft.core.tensor_ir.ir import Buffer, Expression, Load
from graft.core.types import Type, element_bits
from graft.plugins.codegen.emit_analysis import element_count
from graft.plugins.codegen.llvm_ir.addresses import MemoryBuilder, offset_of, pointer, row_major_strides, spread
from graft.plugins.codegen.llvm_ir.arithmetic import binary
from graft.plugins.codegen.llvm_ir.builder import Value, literal, memory_type, register_type

MAX_STRIDE = 4
"""Elements at most so far apart are loaded through whole vectors, others are gathered."""


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
    elif (near := _neighbours(emitter, expression, mask)) is not None:
        text = near
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


def _neighbours(emitter: MemoryBuilder, expression: Load, mask: Value | None) -> str | None:
    """Emit a load of lanes that lie together, in an order that is known now, as one vector and a shuffle.

    An image enlarged by whole numbers reads so. None where lanes are apart, or none is on.
    """
    type, buffer = expression.type, expression.buffer
    lanes = type.lanes
    whole = range(lanes)
    varying = None if mask is None or mask.text.startswith("<") else mask
    on = whole if mask is None or varying is not None else _lanes_on(mask)
    form, places = Linear[str](), [0] * lanes
    for index, stride in zip(expression.indices, row_major_strides(emitter, buffer), strict=True):
        found = spread(emitter, index, lanes)
        if found is None or stride.integer is None:
            return None
        form = form.plus(found[0], stride.integer)
        places = [place + step * stride.integer for place, step in zip(places, found[1], strict=True)]
    if not on:
        return None
    first = min(places[lane] for lane in on)
    span = max(places[lane] for lane in on) - first + 1
    if span > MAX_STRIDE * lanes or span > MAX_STRIDE * len(on):
        return None
    room = max(2, 1 << (span - 1).bit_length())
    wanted = {places[lane] - first for lane in on}
    address, align = pointer(emitter, buffer, form.plus(Linear(first))), _bytes(buffer)
    memory = memory_type(type.with_lanes(room))
    if varying is not None:
        wanted_places = [[lane for lane in whole if places[lane] == first + place] for place in range(room)]
        switch = Value(_any_on(emitter, varying, wanted_places), Type("bool", room))
        loaded = _masked_load(emitter, memory, address, switch, align)
    elif room == span:
        loaded = emitter.let(f"load {memory}, ptr {address}, align {align}")
    else:
        switches = ", ".join(f"i1 {str(place in wanted).lower()}" for place in range(room))
        loaded = _masked_load(emitter, memory, address, Value(f"<{switches}>", Type("bool", room)), align)
    chosen = ", ".join(f"i32 {places[lane] - first if lane in on else room}" for lane in whole)
    order = f"<{lanes} x i32> <{chosen}>"
    result = emitter.let(f"shufflevector {memory} {loaded}, {memory} zeroinitializer, {order}")
    if varying is None:
        return result
    switches, own = f"{register_type(varying.type)} {varying.text}", memory_type(type)
    return emitter.let(f"select {switches}, {own} {result}, {own} zeroinitializer")


def _any_on(emitter: MemoryBuilder, mask: Value, lanes: Sequence[Sequence[int]]) -> str:
    """Return a mask with a lane for each of ``lanes``: whether any of those lanes of another mask is on."""
    kind, result = register_type(mask.type), ""
    for turn in range(max(map(len, lanes))):
        order = _order(own[turn] if turn < len(own) else mask.type.lanes for own in lanes)
        found = emitter.let(f"shufflevector {kind} {mask.text}, {kind} zeroinitializer, <{len(lanes)} x i32> {order}")
        result = emitter.let(f"or <{len(lanes)} x i1> {result}, {found}") if result else found
    return result


def _lanes_on(mask: Value) -> list[int] | None:
    """Return the lanes that a literal mask leaves on, None for another one."""
    lanes = mask.text[1:-1].split(", ") if mask.text.startswith("<") else []
    return [lane for lane, switch in enumerate(lanes) if switch == "i1 true"] or None


def _strided(emitter: MemoryBuilder, address: str, stride: int, type: Type, mask: Value | None, align: int) -> str:
    """Load every ``stride``-th element through whole vectors; with a mask only the wanted elements are switched on.

    Without one the last vector ends at the last element, so that nothing behind it is read.
    """
    lanes, memory, element = type.lanes, memory_type(type), memory_type(type.with_lanes(1))
    condition, last = register_type(Type("bool", lanes)), (lanes - 1) * stride
    begins = [part * lanes for part in range(stride)]
    if mask is None:
        begins[-1] = last + 1 - lanes
    result = ""
    for part, begin in enumerate(begins):
        place = emitter.let(f"getelementptr inbounds {element}, ptr {address}, i64 {begin}") if begin else address
        if mask is None:
            loaded = emitter.let(f"load {memory}, ptr {place}, align {align}")
        else:
            spread_ = _order(place // stride if place % stride == 0 else lanes for place in range(begin, begin + lanes))
            zeros = f"{condition} zeroinitializer"
            wanted = emitter.let(f"shufflevector {condition} {mask.text}, {zeros}, <{lanes} x i32> {spread_}")
            loaded = _masked_load(emitter, memory, place, Value(wanted, Type("bool", lanes)), align)
        own = [lane * stride // lanes == part for lane in range(lanes)]
        chosen = _order(lanes + lane * stride - begin if own[lane] else lane for lane in range(lanes))
        before = result or "poison"
        result = emitter.let(f"shufflevector {memory} {before}, {memory} {loaded}, <{lanes} x i32> {chosen}")
    return result


def _order(places: Iterable[int]) -> str:
    """Return the lanes that a shuffle takes."""
    return f"<{', '.join(f'i32 {place}' for place in places)}>"


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
    if offset is not None and lanes > 1 and 2 <= offset.lane <= MAX_STRIDE:
        _strided_store(emitter, pointer(emitter, buffer, offset), offset.lane, type, text, condition, align)
        return
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


def _strided_store(
    emitter: MemoryBuilder, address: str, stride: int, type: Type, text: str, mask: Value | None, align: int
) -> None:
    """Store to every ``stride``-th element by whole vectors, of which only those elements are switched on."""
    lanes, memory, switch = type.lanes, memory_type(type), mask or _all_on(type.lanes)
    element = memory_type(type.with_lanes(1))
    for part in range(stride):
        places = range(part * lanes, (part + 1) * lanes)
        chosen = _order(place // stride if place % stride == 0 else lanes for place in places)
        order, condition = f"<{lanes} x i32> {chosen}", f"<{lanes} x i1>"
        value = emitter.let(f"shufflevector {memory} {text}, {memory} zeroinitializer, {order}")
        wanted = emitter.let(f"shufflevector {condition} {switch.text}, {condition} zeroinitializer, {order}")
        place = emitter.let(f"getelementptr {element}, ptr {address}, i64 {part * lanes}")
        wanted = _unfolded(emitter, wanted, lanes) if _may_be_cut(emitter, type) else wanted
        arguments = [(memory, value), (f"ptr align {align}", place), (condition, wanted)]
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
