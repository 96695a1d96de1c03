"""NumPy arrays to and from custom datatypes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes.arrays import decode, encode
from graft.datatypes.conversion import convert
from graft.datatypes.lowering import via
from graft.datatypes.registry import DatatypeRegistry
from graft.datatypes.shipped import DATATYPES
from graft.errors import GraftError


def message(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    return caught.value.message


def test_a_cast_between_types_without_a_rule_is_missing() -> None:
    if "ruleless" not in DATATYPES:
        DATATYPES.register("ruleless", widths=(16,))
        DATATYPES.register_op(via("float32"), "Add", "llvm", "ruleless")
    proto = sums("float32", nodes=2)
    assert message(convert, proto, "custom[posit]16", types={"second": "custom[ruleless]16"}) == (
        "model 'sums': there is no lowering of Cast from custom[ruleless]16 to float32, Cast from float32 "
        "to custom[ruleless]16; register each with graft.datatypes.register_op"
    )


def test_a_cast_to_another_type_than_the_storage_is_an_error() -> None:
    registry = DatatypeRegistry()
    registry.register("upper", widths=(16,))
    registry.register_op(lambda x: Value(x).bits("uint32") >> 16, "Cast", None, "upper", "float32")
    assert message(encode, np.zeros(3), "custom[upper]16", registry=registry) == (
        "the lowering of Cast of custom[upper]16 gives uint32, but its storage type is uint16; return an expression of "
        "that type"
    )


def test_bits_are_decoded_not_floats() -> None:
    assert message(decode, np.zeros(3), "custom[posit]16") == (
        "custom[posit]16 is decoded from storage bits, uint16; these are float64"
    )


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
