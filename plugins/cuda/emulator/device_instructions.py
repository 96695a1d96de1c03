"""Instructions of PTX that are no arithmetic: memory, control, and what threads do together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graft.plugins.cuda.emulator.arithmetic import COMPARED, FLOATS, ORDERED, bits_of, conversion, shift_row, type_of
from graft.plugins.cuda.emulator.emission import Emission
from graft.plugins.cuda.emulator.ptx_text import Instruction

SPACES = {"global": 1, "shared": 2, "shared::cta": 2, "local": 3}
"""The emulator's numbers of state spaces."""
WRITES, IS_CONSTANT, IS_ATOMIC = 4, 8, 16
_FACTORS = {"f16": 0, "bf16": 1, "tf32": 2, "s8": 3, "u8": 4}
"""The emulator's numbers of the types of factors."""
_ALL = {"-1", "0xffffffff", "4294967295"}


# ---- Memory ----


def _space(one: Instruction) -> int:
    return next((number for name, number in SPACES.items() if name in one.parts), 0)


def _lanes(one: Instruction) -> int:
    return next((int(part[1:]) for part in one.parts if part in {"v2", "v4", "v8"}), 1)


def _located(to: Emission, one: Instruction, operand: str, how: int) -> str:
    """Return a pointer to what is accessed."""
    address, space = to.address(operand), _space(one)
    if space == SPACES["local"] or "param" in one.parts:
        return to.let(f"inttoptr i64 {address} to ptr")
    size = bits_of(one.kind) // 8 * _lanes(one)
    return to.call("access", f"i64 {address}", f"i32 {size}", f"i32 {space | how}", f"i32 {one.line}", result="ptr")


def _load(to: Emission, one: Instruction) -> None:
    place = _located(to, one, one.operands[1], IS_CONSTANT if "nc" in one.parts else 0)
    bits = bits_of(one.kind)
    targets = _names(one.operands[0])
    for number, target in enumerate(targets):
        at = to.let(f"getelementptr i{bits}, ptr {place}, i64 {number}") if number else place
        value = to.let(f"load i{bits}, ptr {at}, align 1")
        to.write(target, value, one.kind if one.kind[0] == "s" else f"b{bits}")


def _store(to: Emission, one: Instruction) -> None:
    place = _located(to, one, one.operands[0], WRITES)
    bits = bits_of(one.kind)
    values = _names(one.operands[1])
    for number, value in enumerate(values):
        at = to.let(f"getelementptr i{bits}, ptr {place}, i64 {number}") if number else place
        to.emit(f"store i{bits} {to.bits(value, f'b{bits}')}, ptr {at}, align 1")


def _swap(to: Emission, one: Instruction) -> None:
    if "cas" not in one.parts:
        raise to.refused(one, "the emulator has no atomic operation but cas")
    kind = f"i{bits_of(one.kind)}"
    place = _located(to, one, one.operands[1], WRITES | IS_ATOMIC)
    old = to.let(f"load {kind}, ptr {place}, align 1")
    expected, new = (to.bits(operand, one.kind) for operand in one.operands[2:])
    same = to.let(f"icmp eq {kind} {old}, {expected}")
    to.emit(f"store {kind} {to.let(f'select i1 {same}, {kind} {new}, {kind} {old}')}, ptr {place}, align 1")
    to.write(one.operands[0], old, one.kind)


def _convert_address(to: Emission, one: Instruction) -> None:
    value = to.bits(one.operands[1], one.kind)
    if "shared" in one.parts:
        base = to.call("shared", result="i64")
        value = to.let(f"{'sub' if 'to' in one.parts else 'add'} i64 {value}, {base}")
    to.write(one.operands[0], value, one.kind)


# ---- Registers ----


def _move(to: Emission, one: Instruction) -> None:
    to.write(
        one.operands[0], to.bits(one.operands[1], one.kind), f"b{bits_of(one.kind)}" if one.kind != "pred" else "pred"
    )


def _convert(to: Emission, one: Instruction) -> None:
    *modifiers, target, source = one.parts[1:]
    if target in {"f16x2", "bf16x2"}:
        high, low = (to.read(operand, source) for operand in one.operands[1:])
        half = FLOATS[target.removesuffix("x2")]
        parts = [to.let(f"bitcast {half} {to.let(f'fptrunc float {part} to {half}')} to i16") for part in (low, high)]
        wide = [to.let(f"zext i16 {part} to i32") for part in parts]
        to.write(one.operands[0], to.let(f"or i32 {wide[0]}, {to.let(f'shl i32 {wide[1]}, 16')}"), "b32")
    elif target == "tf32":
        value = to.let(f"add i32 {to.bits(one.operands[1], 'b32')}, 4096")
        to.write(one.operands[0], to.let(f"and i32 {value}, -8192"), "b32")
    else:
        value = to.rows(conversion(tuple(modifiers), target, source), a=to.read(one.operands[1], source))
        to.write(one.operands[0], value, target)


def _compare(to: Emission, one: Instruction) -> None:
    kind, (a, b) = one.kind, one.operands[1:3]
    own, left, right = type_of(kind), to.read(a, kind), to.read(b, kind)
    if kind in FLOATS:
        text = f"fcmp {ORDERED[one.parts[1]]} {own} {left}, {right}"
    else:
        name = COMPARED[one.parts[1]]
        sign = "" if name in {"eq", "ne"} else "s" if kind[0] == "s" else "u"
        text = f"icmp {sign}{name} {own} {left}, {right}"
    found, targets = to.let(text), one.operands[0].split("|")
    found_by = [to.let(f"extractelement <2 x i1> {found}, i32 {at}") for at in (0, 1)] if own[0] == "<" else [found]
    if len(one.operands) > 3:
        other = to.bits(one.operands[3], "pred")
        found_by = [to.let(f"{one.parts[2]} i1 {value}, {other}") for value in found_by]
    if len(targets) > len(found_by):
        found_by.append(to.let(f"xor i1 {found_by[0]}, true"))
    for target, value in zip(targets, found_by, strict=True):
        if target != "_":
            to.write(target, value, "pred")


def _select(to: Emission, one: Instruction) -> None:
    kind = f"i{bits_of(one.kind)}"
    a, b = (to.bits(operand, one.kind) for operand in one.operands[1:3])
    to.write(
        one.operands[0], to.let(f"select i1 {to.bits(one.operands[3], 'pred')}, {kind} {a}, {kind} {b}"), f"b{kind[1:]}"
    )


def _shift(to: Emission, one: Instruction) -> None:
    own, bits = to.read(one.operands[1], one.kind), bits_of(one.kind)
    by = to.bits(one.operands[2], "b32")
    to.write(one.operands[0], to.rows(shift_row(one.root, one.kind), a=own, b=by, t=f"i{bits}", n=str(bits)), one.kind)


def _funnel(to: Emission, one: Instruction) -> None:
    low, high, by = (to.bits(operand, "b32") for operand in one.operands[1:4])
    name = "fshl" if "l" in one.parts else "fshr"
    if "clamp" in one.parts:
        raise to.refused(one, "the emulator has no funnel shift that clamps")
    to.write(one.operands[0], to.let(f"call i32 @llvm.{name}.i32(i32 {high}, i32 {low}, i32 {by})"), "b32")


def _wide(to: Emission, one: Instruction) -> None:
    """Multiply to twice as many bits, and add where it is a mad."""
    kind, extend = one.kind, "sext" if one.kind[0] == "s" else "zext"
    bits = bits_of(kind)
    a, b = (to.let(f"{extend} i{bits} {to.bits(operand, kind)} to i{2 * bits}") for operand in one.operands[1:3])
    total = to.let(f"mul i{2 * bits} {a}, {b}")
    if one.root == "mad":
        total = to.let(f"add i{2 * bits} {total}, {to.bits(one.operands[3], f'b{2 * bits}')}")
    to.write(one.operands[0], total, f"{kind[0]}{2 * bits}")


def _places(to: Emission, one: Instruction) -> tuple[int, int]:
    """Return the place and the number of bits, which are known."""
    place, length = one.operands[-2:]
    if place.startswith("%") or length.startswith("%"):
        raise to.refused(one, "the emulator takes bits at places that are known")
    bits = bits_of(one.kind)
    first = min(int(place, 0), bits)
    return first, min(int(length, 0), bits - first)


def _extract(to: Emission, one: Instruction) -> None:
    """Take bits out."""
    kind, bits = f"i{bits_of(one.kind)}", bits_of(one.kind)
    place, length = _places(to, one)
    if not length:
        raise to.refused(one, "it takes no bits")
    moved = to.let(f"shl {kind} {to.bits(one.operands[1], one.kind)}, {bits - place - length}")
    shift = "ashr" if one.kind[0] == "s" else "lshr"
    to.write(one.operands[0], to.let(f"{shift} {kind} {moved}, {bits - length}"), one.kind)


def _insert(to: Emission, one: Instruction) -> None:
    """Put the low bits of one number into another one."""
    kind = f"i{bits_of(one.kind)}"
    place, length = _places(to, one)
    mask = (1 << length) - 1
    given, into = (to.bits(operand, one.kind) for operand in one.operands[1:3])
    kept = to.let(f"and {kind} {into}, {~(mask << place)}")
    low = to.let(f"and {kind} {given}, {mask}")
    moved = to.let(f"shl {kind} {low}, {place}") if length else "0"
    to.write(one.operands[0], to.let(f"or {kind} {kept}, {moved}"), one.kind)


def _permute(to: Emission, one: Instruction) -> None:
    """Take four bytes of eight."""
    low, high = (to.let(f"zext i32 {to.bits(operand, 'b32')} to i64") for operand in one.operands[1:3])
    both, total = to.let(f"or i64 {low}, {to.let(f'shl i64 {high}, 32')}"), "0"
    chosen = to.let(f"zext i32 {to.bits(one.operands[3], 'b32')} to i64")
    for number in range(4):
        nibble = to.let(f"lshr i64 {chosen}, {4 * number}")
        shift = to.let(f"shl i64 {to.let(f'and i64 {nibble}, 7')}, 3")
        byte = to.let(f"trunc i64 {to.let(f'lshr i64 {both}, {shift}')} to i8")
        is_sign = to.let(f"icmp ne i64 {to.let(f'and i64 {nibble}, 8')}, 0")
        byte = to.let(f"select i1 {is_sign}, i8 {to.let(f'ashr i8 {byte}, 7')}, i8 {byte}")
        moved = to.let(f"shl i32 {to.let(f'zext i8 {byte} to i32')}, {8 * number}")
        total = to.let(f"or i32 {total}, {moved}")
    to.write(one.operands[0], total, "b32")


def _lookup(to: Emission, one: Instruction) -> None:
    """Any function of three bits, by its table."""
    a, b, c = (to.bits(operand, "b32") for operand in one.operands[1:4])
    table, total = int(one.operands[4].rstrip("U"), 0), "0"
    for number in range(8):
        if table >> number & 1:
            parts = [
                value if number & mask else to.let(f"xor i32 {value}, -1") for value, mask in ((a, 4), (b, 2), (c, 1))
            ]
            both = to.let(f"and i32 {to.let(f'and i32 {parts[0]}, {parts[1]}')}, {parts[2]}")
            total = to.let(f"or i32 {total}, {both}")
    to.write(one.operands[0], total, "b32")


# ---- Control ----


def _branch(to: Emission, one: Instruction) -> None:
    to.finish(f'br label %"{one.operands[0]}"')


def _return(to: Emission, one: Instruction) -> None:
    if not to.function.results:
        to.finish("ret void")
        return
    ((kind, name),) = to.function.results
    own = f"i{bits_of(kind)}"
    to.finish(f"ret {own} {to.loaded(own, name)}")


def _call(to: Emission, one: Instruction) -> None:
    *result, name, given = one.operands if len(one.operands) == 3 else ("", *one.operands)
    called = to.known.get(name)
    if called is None:
        raise to.refused(one, f"there is no function '{name}'")
    kinds = [f"i{bits_of(kind)}" for kind, _ in called.parameters]
    values = ", ".join(
        f"{kind} {to.loaded(kind, name)}" for kind, name in zip(kinds, _names(given.strip("() ")), strict=True)
    )
    own = f"i{bits_of(called.results[0][0])}" if called.results else "void"
    text = f'call {own} @"{name}.thread"({values})'
    if not called.results:
        to.emit(text)
        return
    place = result[0].strip("() ")
    to.emit(f'store {own} {to.let(text)}, ptr %"{place}"')


# ---- What threads do together ----


def _barrier(to: Emission, one: Instruction) -> None:
    if one.parts[1] == "warp":
        if one.operands[0] not in _ALL:
            raise to.refused(one, "the emulator has barriers of whole warps")
        to.call("warp_barrier", f"i32 {one.line}")
        return
    if one.operands not in {("0",), ()} or "arrive" in one.parts or "red" in one.parts:
        raise to.refused(one, "the emulator has one barrier, number 0, of whole blocks")
    to.call("barrier", f"i32 {one.line}")


def _copy(to: Emission, one: Instruction) -> None:
    target, source, size = one.operands
    near = to.let(f"trunc i64 {to.address(target)} to i32")
    to.call("copy", f"i32 {near}", f"i64 {to.address(source)}", f"i32 {size}", f"i32 {one.line}")


def _commit(to: Emission, one: Instruction) -> None:
    to.call("commit", f"i32 {one.line}")


def _wait(to: Emission, one: Instruction) -> None:
    to.call("wait", f"i32 {one.operands[0]}", f"i32 {one.line}")


def _shared_address(to: Emission, operand: str) -> str:
    return to.let(f"trunc i64 {to.address(operand)} to i32")


def _open_barrier(to: Emission, one: Instruction) -> None:
    at = _shared_address(to, one.operands[0])
    to.call("open_barrier", f"i32 {at}", f"i32 {to.bits(one.operands[1], 'b32')}", f"i32 {one.line}")


def _expect(to: Emission, one: Instruction) -> None:
    at = _shared_address(to, one.operands[1])
    to.call("expect", f"i32 {at}", f"i32 {to.bits(one.operands[2], 'b32')}", f"i32 {one.line}")


def _copy_bulk(to: Emission, one: Instruction) -> None:
    target, source, size, barrier = one.operands
    near, arrived = _shared_address(to, target), _shared_address(to, barrier)
    bytes_ = to.bits(size, "b32")
    to.call(
        "copy_bulk", f"i32 {near}", f"i64 {to.address(source)}", f"i32 {bytes_}", f"i32 {arrived}", f"i32 {one.line}"
    )


def _wait_barrier(to: Emission, one: Instruction) -> None:
    at = _shared_address(to, one.operands[1])
    to.call("wait_barrier", f"i32 {at}", f"i32 {to.bits(one.operands[2], 'b32')}", f"i32 {one.line}")
    to.write(one.operands[0], "true", "pred")


def _fence(to: Emission, one: Instruction) -> None:
    to.call("fence_async")


def _names(operand: str) -> list[str]:
    return [part.strip() for part in operand.strip("{} ").split(",")]


def _load_matrices(to: Emission, one: Instruction) -> None:
    names, words = _names(one.operands[0]), to.place("words", 6)
    row = _shared_address(to, one.operands[1])
    given = (f"i32 {len(names)}", f"i32 {int('trans' in one.parts)}", f"i32 {one.line}")
    to.call("load_matrices", f"i32 {row}", f"ptr {words}", *given)
    _loaded(to, words, names)


def _loaded(to: Emission, place: str, names: list[str]) -> None:
    for number, name in enumerate(names):
        at = to.let(f"getelementptr i32, ptr {place}, i64 {number}")
        to.write(name, to.let(f"load i32, ptr {at}, align 4"), "b32")


def _stored(to: Emission, place: str, names: list[str]) -> None:
    for number, name in enumerate(names):
        at = to.let(f"getelementptr i32, ptr {place}, i64 {number}")
        to.emit(f"store i32 {to.bits(name, 'b32')}, ptr {at}, align 4")


def _multiply(to: Emission, one: Instruction) -> None:
    results, a, b, c = map(_names, one.operands)
    left, right = one.parts[-3], one.parts[-2]
    if (len(a), len(b)) != (4, 2) or left not in _FACTORS or one.parts[-6:-4] != ("row", "col"):
        raise to.refused(one, "the emulator has products of 16 rows and 8 columns of 32 bytes")
    words, sums = to.place("words", 6), to.place("sums", 4)
    _stored(to, words, [*a, *b])
    _stored(to, sums, c)
    numbers = to.numbers(_FACTORS[left], _FACTORS[right])
    to.call("multiply", f"ptr {words}", f"ptr {sums}", f"ptr {numbers}", f"i32 {one.line}")
    _loaded(to, sums, results)


def _multiply_group(to: Emission, one: Instruction) -> None:
    sums, left, right, scale, *flags = one.operands
    columns = int(one.parts[4].partition("n")[2].partition("k")[0])
    transposed = [int(flag) for flag in flags[2:]] or [0, 0]
    if scale != "1" or any(flag != "1" for flag in flags[:2]) or one.parts[-1] not in _FACTORS:
        raise to.refused(
            one, "the emulator has warpgroups' products that are added to sums, of both factors as they are"
        )
    names, place = _names(sums), to.place(f"group{columns}", columns // 2)
    _stored(to, place, names)
    numbers = to.numbers(_FACTORS[one.parts[-2]], _FACTORS[one.parts[-1]], columns, *transposed)
    factors = [f"i64 {to.bits(operand, 'b64')}" for operand in (left, right)]
    to.call("multiply_group", *factors, f"ptr {place}", f"ptr {numbers}", f"i32 {one.line}")
    _loaded(to, place, names)


def _exchange(to: Emission, one: Instruction) -> None:
    target, *given = one.operands
    if "bfly" not in one.parts:
        raise to.refused(one, "the emulator has exchanges with the thread whose number is another one's xor a mask")
    place = to.place("words", 6)
    to.call("exchange", *(f"i32 {to.bits(operand, 'b32')}" for operand in given), f"ptr {place}", f"i32 {one.line}")
    value, _, is_there = target.partition("|")
    _loaded(to, place, [value])
    if is_there:
        to.write(is_there, "true", "pred")


def _nothing(to: Emission, one: Instruction) -> None:
    """What `warpgroup_order` has looked at."""


RULES: Mapping[str, Callable[[Emission, Instruction], None]] = {
    "ld": _load, "st": _store, "atom": _swap, "cvta": _convert_address, "mov": _move, "cvt": _convert,
    "setp": _compare, "selp": _select, "shl": _shift, "shr": _shift, "shf": _funnel, "mul.wide": _wide,
    "mad.wide": _wide, "bfe": _extract, "bfi": _insert, "prmt": _permute, "lop3": _lookup, "bra": _branch,
    "ret": _return, "exit": _return, "call": _call, "bar": _barrier, "barrier": _barrier,
    "cp.async.ca": _copy, "cp.async.cg": _copy, "cp.async.commit_group": _commit, "cp.async.wait_group": _wait,
    "cp.async.bulk": _copy_bulk, "mbarrier.init": _open_barrier, "mbarrier.arrive.expect_tx": _expect,
    "mbarrier.try_wait": _wait_barrier, "fence.proxy.async": _fence, "fence.proxy.async::shared::cta": _fence,
    "fence.proxy.async.shared::cta": _fence, "ldmatrix": _load_matrices, "mma": _multiply, "shfl": _exchange,
    "wgmma.mma_async": _multiply_group, "wgmma.fence": _nothing, "wgmma.commit_group": _nothing,
    "wgmma.wait_group": _nothing,
}  # fmt: skip

COLLECTIVE = ("bar.", "barrier.", "cp.async", "mbarrier.", "ldmatrix.", "mma.", "shfl.", "wgmma.")
"""What begins the names of instructions that let a thread wait."""
