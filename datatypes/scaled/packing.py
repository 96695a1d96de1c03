"""Constant elements of scaled products, packed in memory: two of 4 bits in a byte, four of 6 in three.

Elements that are summed over lie together: of 4 bits, the first is in the low bits of its byte; of 6, the four of a
group follow each other from the low bits of the first byte on. Where a kernel read an element, it reads its bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import Binary, Buffer, Cast, Expression, Load
from graft.core.tensor_ir.ordered_stages import map_stage
from graft.core.tensor_ir.visit import ExpressionMap
from graft.datatypes.prepare import Prepared
from graft.datatypes.scaled.operators import DOMAIN

GROUPS = {4: (2, 1), 6: (4, 3)}
"""The elements of a group, and the bytes that they take, by the bits of an element."""


def with_packed_elements(prepared: Prepared) -> Prepared:
    """Return a kernel of a scaled product whose constant elements are packed; any other as it is."""
    kernel = prepared.kernel
    node = kernel.node
    if node is None or (node.node.domain, node.op_type) != (DOMAIN, "MatMul"):
        return prepared
    packed: dict[Buffer, tuple[Buffer, int]] = {}
    made: dict[Buffer, np.ndarray] = dict(prepared.made)
    for buffer, contents in kernel.constants.items():
        bits = _bits_of(buffer, contents)
        if bits:
            bytes_of = packed_bytes(contents, bits)
            new = replace(buffer, name=f"{buffer.name}_packed", shape=tuple(map(b.index, bytes_of.shape)))
            packed[buffer], made[new] = (new, bits), bytes_of
    if not packed:
        return prepared

    def unpacked(one: Expression) -> Expression:
        return _element(one, *packed[one.buffer]) if isinstance(one, Load) and one.buffer in packed else one

    stages = tuple(map_stage(stage, ExpressionMap(unpacked)) for stage in kernel.stages)
    inputs = tuple(packed[one][0] if one in packed else one for one in kernel.inputs)
    constants = {one: array for one, array in {**kernel.constants, **made}.items() if one in inputs}
    changed = replace(kernel, stages=stages, inputs=inputs, constants=constants)
    sources = {new: prepared.sources.get(old, old) for old, (new, _) in packed.items()}
    return Prepared(
        changed, {one: array for one, array in made.items() if one in inputs}, {**prepared.sources, **sources}
    )


def packed_bytes(elements: np.ndarray, bits: int) -> np.ndarray:
    """Return elements (uint8) packed along the last axis but one, which is filled up to whole groups with zeros."""
    count, size = GROUPS[bits]
    *outer, depth, width = elements.shape
    groups = -(-depth // count)
    filled = np.pad(elements, [(0, 0)] * len(outer) + [(0, groups * count - depth), (0, 0)])
    kind = np.uint8 if size == 1 else np.uint32
    words = np.zeros((*outer, groups, width), kind)
    for place in range(count):
        words |= np.left_shift(filled[..., place::count, :], place * bits, dtype=kind)
    found = np.stack([(words >> (8 * one)).astype(np.uint8) for one in range(size)], axis=-2)
    return found.reshape(*outer, groups * size, width)


def _bits_of(buffer: Buffer, contents: np.ndarray) -> int | None:
    """Return in how many bits the elements of a constant fit that can be packed."""
    if buffer.dtype != "uint8" or contents.ndim < 2 or not contents.size:
        return None
    most = int(contents.max())
    return next((bits for bits in GROUPS if most < 1 << bits), None)


def _element(load: Load, packed: Buffer, bits: int) -> Expression:
    """Return an element by its place: its one byte, or its two, shifted and masked."""
    count, size = GROUPS[bits]
    *outer, place, column = load.indices
    first, number = b.multiply(b.divide(place, count), size), b.modulo(place, count)
    shift = b.multiply(number, bits)

    def part(at: Expression) -> Expression:
        return Cast(Load(packed, (*outer, at, column), load.mask), "int32")

    if size == 1:
        word = part(first)
    else:
        begin = b.divide(shift, 8)
        shift = b.modulo(shift, 8)
        low, high = part(b.add(first, begin)), part(b.add(first, b.minimum(b.add(begin, 1), size - 1)))
        word = Binary("or", low, Binary("shl", high, b.constant(8, "int32")))
    code = Binary("and", Binary("shr", word, Cast(shift, "int32")), b.constant((1 << bits) - 1, "int32"))
    return Cast(code, "uint8")
