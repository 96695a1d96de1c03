"""Operations of custom datatypes, one by one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from graft.core.tensor_ir.ir import Expression
from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes.conversion import convert
from graft.datatypes.lowering import lookup
from graft.datatypes.shipped import DATATYPES
from graft.errors import GraftError


def message(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    return caught.value.message


def test_a_table_of_other_than_bits_and_operands_of_the_operation_is_refused() -> None:
    register_truncated("tabled")
    for bits, operands in ((4, 2), (8, 1)):
        table = np.zeros(1 << bits * operands, np.uint8)
        DATATYPES.register_op(lookup(table, bits, operands), "Add", "llvm", "tabled")
        assert message(convert, sums("float32"), "custom[tabled]8") == (
            f"the table of Add of custom[tabled]8 is for {operands} operands of {bits} bits; make one for 2 of 8 bits"
        )


LOWERINGS = {
    "raises": (
        lambda x: x,
        "the lowering of Add of custom[raises]16 fails for 2 operands: TypeError: <lambda>() takes 1 positional "
        "argument but 2 were given",
    ),
    "gives": (
        lambda x, y: 5,
        "the lowering of Add of custom[gives]16 gives int; return an expression of the tensor IR",
    ),
    "widens": (
        lambda x, y: Value(x).cast("float32"),
        "the lowering of Add of custom[widens]16 gives float32, but its storage type is uint16; return an expression "
        "of that type",
    ),
}


@pytest.mark.parametrize("name", LOWERINGS)
def test_a_lowering_that_fails_or_gives_something_else_is_named(name: str) -> None:
    lowering, expected = LOWERINGS[name]
    register_truncated(name)
    DATATYPES.register_op(lowering, "Add", "llvm", name)
    assert message(convert, sums("float32"), f"custom[{name}]16") == expected


def register_truncated(name: str) -> None:
    """Register a type whose bits are the first of a float32's, as far as a sum needs it."""
    if name in DATATYPES:
        return
    DATATYPES.register(name, widths=(8, 16))
    to_bits, to_float = (lambda x: first_bits(x, 16)), (lambda x: (Value(x).cast("uint32") << 16).bits("float32"))
    if name == "tabled":
        to_bits, to_float = (lambda x: first_bits(x, 8)), (lambda x: (Value(x).cast("uint32") << 24).bits("float32"))
    DATATYPES.register_op(to_bits, "Cast", "llvm", name, "float32")
    DATATYPES.register_op(to_float, "Cast", "llvm", "float32", name)


def first_bits(x: Expression, bits: int) -> Value:
    return (Value(x).bits("uint32") >> (32 - bits)).cast(f"uint{bits}")


def sums(dtype: str, nodes: int = 1) -> onnx.ModelProto:
    """Return ``x + x``, and that again."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    names = ["x", "y", "z"][: nodes + 1]
    made = [
        helper.make_node("Add", [before, before], [after], name=title)
        for before, after, title in zip(names, names[1:], ("first", "second"), strict=False)
    ]
    given, result = (helper.make_tensor_value_info(name, kind, [4]) for name in (names[0], names[-1]))
    graph = helper.make_graph(made, "sums", [given], [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
