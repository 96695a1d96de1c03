"""Accesses of a buffer that becomes another one: in loads, in stores, and where an address is fetched ahead."""

from __future__ import annotations

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import Block, Buffer, CallExtern, Load, Store, Variable
from graft.core.tensor_ir.visit import map_accesses


def test_every_access_is_of_the_new_buffer() -> None:
    old, other = (Buffer(name, "float32", (b.index(8),)) for name in ("old", "other"))
    new, i = Buffer("new", "float32", (b.index(2), b.index(8))), Variable("i")
    place, level = (i,), b.index(2)
    body = Block(
        (
            Store(old, place, Load(other, place)),
            Store(other, place, Load(old, place)),
            CallExtern("prefetch", (Load(old, place), level)),
            CallExtern("prefetch", (Load(other, place), level)),
        )
    )
    first = b.index(1)
    changed = map_accesses(body, {old}, lambda buffer, indices: (new, (first, *indices)))
    assert changed == Block(
        (
            Store(new, (first, i), Load(other, place)),
            Store(other, place, Load(new, (first, i))),
            CallExtern("prefetch", (Load(new, (first, i)), level)),
            CallExtern("prefetch", (Load(other, place), level)),
        )
    )
