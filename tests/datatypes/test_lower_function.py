"""Custom types are removed from a function: types, constants, loads, casts, and what has no lowering."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import (
    Binary,
    Buffer,
    Cast,
    Constant,
    Expression,
    Function,
    Load,
    Select,
    Store,
    Unary,
    Variable,
)
from graft.core.types import Type
from graft.datatypes.compute_type import decoded
from graft.datatypes.lower_function import FunctionLowering, lower_function, require
from graft.datatypes.lowering import lookup
from graft.datatypes.posit import Posit
from graft.datatypes.registry import DatatypeRegistry
from graft.errors import DatatypeError

POSIT, BARE = "custom[posit]8", "custom[bare]8"


@pytest.fixture
def registry() -> DatatypeRegistry:
    own = DatatypeRegistry()
    own.register("posit", format=lambda bits: Posit(bits) if bits == 8 else None, widths=(8,))
    own.register("bare", widths=(8,))
    return own


def load(dtype: str, mask: Expression | None = None) -> Load:
    return Load(Buffer("x", dtype, (b.index(4),)), (b.index(0),), mask)


def test_stored_numbers_are_storage_and_decoded_ones_the_carrier(registry: DatatypeRegistry) -> None:
    lowering = FunctionLowering(registry)
    kind = decoded(POSIT, Posit(8))
    assert (lowering.plain(POSIT), lowering.plain(kind)) == ("uint8", Posit(8).carrier)
    plain, custom = Buffer("p", "float32", (b.index(4),)), Buffer("c", POSIT, (b.index(4),))
    assert lowering.buffer(plain) is plain
    assert not lowering.is_exact
    assert lowering.buffer(custom).dtype == "uint8"
    assert lowering.buffer(custom) is lowering.buffer(custom)
    assert lowering.is_exact
    index, number = Variable("i", Type("int64")), Variable("v", Type(kind, 4))
    assert lowering.variable(index) is index
    assert lowering.variable(number) is lowering.variable(number)
    assert lowering.variable(number).type == Type(Posit(8).carrier, 4)


def test_a_constant_is_the_nearest_number_or_its_code(registry: DatatypeRegistry) -> None:
    lowering = FunctionLowering(registry)
    kind = decoded(POSIT, Posit(8))
    assert lowering.expression(Constant(1.01, Type(kind))) == Constant(1.0, Type(Posit(8).carrier))
    assert lowering.expression(Constant(1.0, Type(POSIT, 4))) == Constant(0x40, Type("uint8", 4))
    assert lowering.missing == set()


def test_expressions_without_custom_types_stay_and_shared_ones_stay_shared(registry: DatatypeRegistry) -> None:
    lowering = FunctionLowering(registry)
    part = Unary("neg", load("float32"))
    lowered = lowering.expression(Binary("add", part, part))
    assert isinstance(lowered, Binary)
    assert lowered.left is lowered.right
    assert not lowering.is_exact


def test_what_a_mask_leaves_out_is_the_number_zero(registry: DatatypeRegistry) -> None:
    mask = Variable("m", Type("bool"))
    zero_is_zero = FunctionLowering(registry).expression(load(POSIT, mask))
    assert isinstance(zero_is_zero, Load)

    def five_more(x: Expression) -> Expression:
        return Cast(Binary("add", x, b.literal(5.0, x.type)), "uint8")

    registry.register_op(five_more, "Cast", None, "bare", "float32")
    lowered = FunctionLowering(registry).expression(load(BARE, mask))
    assert isinstance(lowered, Select)
    assert isinstance(lowered.on_false, Constant)
    assert lowered.on_false.value == 5


def test_operations_without_a_lowering_are_named_once_and_go_on(registry: DatatypeRegistry) -> None:
    lowering = FunctionLowering(registry, "npu")
    total = Binary("add", load(BARE), load(BARE))
    less = Binary("lt", total, load(BARE))
    assert lowering.expression(less).type == Type("bool")
    assert lowering.expression(Cast(load(BARE), "float32")).type == Type("float32")
    assert lowering.missing == {f"Add of {BARE}", f"LT of {BARE}", f"Cast from {BARE} to float32"}
    with pytest.raises(DatatypeError) as caught:
        require(lowering.missing, "npu", "region 'r'")
    assert str(caught.value) == (
        f"region 'r': backend 'npu' has no lowering of Add of {BARE}, Cast from {BARE} to float32, LT of {BARE}; "
        "register each with graft.datatypes.register_op"
    )


def test_nothing_missing_is_no_error_and_without_a_backend_there_is_none(registry: DatatypeRegistry) -> None:
    require(set(), None, "x")
    with pytest.raises(DatatypeError, match=r"x: there is no lowering of Add of posit; "):
        require({"Add of posit"}, None, "x")


def test_a_function_has_its_tables_behind_its_inputs(registry: DatatypeRegistry) -> None:
    table = np.arange(256, dtype=np.uint8)
    registry.register_op(lookup(table, 8, 1), "Neg", None, "bare")
    x, y = (Buffer(name, BARE, (b.index(4),)) for name in "xy")
    place = (b.index(0),)
    negate = Store(y, place, Unary("neg", Load(x, place)), None)
    lowered = lower_function(Function("f", (x, y), 1, negate), registry)
    assert [one.dtype for one in lowered.function.parameters] == ["uint8", "uint8", "uint8"]
    assert [array is table for array in lowered.tables.values()] == [True]
    assert lowered.function.is_exact
    assert (lowered.missing, lowered.libraries) == (frozenset(), frozenset())


def test_a_function_that_is_known_to_be_plain_is_returned_as_it_is() -> None:
    x, y = (Buffer(name, "float32", (b.index(4),)) for name in "xy")
    function = Function("f", (x, y), 1, Store(y, (b.index(0),), Load(x, (b.index(0),)), None))
    assert lower_function(function, is_plain=True).function is function
    assert lower_function(function).function == function
