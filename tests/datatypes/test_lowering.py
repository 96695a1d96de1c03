"""The ways to lower an operation, and what is none."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes.lowering import Extern, bits_of, create_lower_func, lookup, lowering_of, via
from graft.datatypes.posit import Posit
from graft.datatypes.registry import DatatypeRegistry
from graft.errors import GraftError


@pytest.fixture
def registry() -> DatatypeRegistry:
    own = DatatypeRegistry()
    own.register("takum", 150, widths=(16,), owner="plugin 'takum'")
    own.register("posit", format=lambda bits: Posit(bits) if bits in (8, 16) else None, widths=(8, 16))
    return own


def message(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    return caught.value.message


def test_a_lowering_must_be_one(registry: DatatypeRegistry) -> None:
    assert message(registry.register_op, "TakumAdd", "Add", "llvm", "takum") == (
        "the lowering of Add of 'takum' is a str; give create_lower_func(...), a function of expressions, via(...) or "
        "lookup(...)"
    )


def test_an_operation_can_go_through_two_floats_only() -> None:
    assert message(via, "float16") == "an operation can go through float32 or float64, not through 'float16'"


def test_a_library_that_is_not_there_is_named() -> None:
    assert message(create_lower_func, {16: "Add"}, "libnowhere.so") == (
        "library 'libnowhere.so' cannot be loaded: libnowhere.so: cannot open shared object file: No such file or "
        "directory"
    )


def test_a_symbol_that_is_not_there_is_named() -> None:
    assert message(create_lower_func, {16: "NoSuchPositAdd"}) == (
        "symbol 'NoSuchPositAdd' is not found in this process; name the library that has it"
    )


def test_a_table_of_the_wrong_size_says_which_is_right() -> None:
    assert message(lookup, np.zeros(256, np.uint8), 8) == (
        "a table for 2 operands of 8 bits has 65536 entries, this one has shape (256,)"
    )


def test_tables_end_at_8_bits() -> None:
    assert message(lookup, np.zeros(1 << 16, np.uint16), 16, 1) == (
        "a table of operands of 16 bits is too large; tables are for up to 8 bits"
    )


def test_a_table_is_made_of_a_numpy_function() -> None:
    table = lookup(lambda x, y: (x ^ y).astype(np.uint8), 4).table
    assert table[0x35] == 3 ^ 5


def test_a_table_may_have_an_axis_for_each_operand() -> None:
    square = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(lookup(square, 4).table, lookup(square.ravel(), 4).table)
    assert message(lookup, square.reshape(32, 8), 4) == (
        "a table for 2 operands of 4 bits has 256 entries, this one has shape (32, 8)"
    )


def test_a_table_of_a_function_that_fails_is_refused() -> None:
    assert message(lookup, lambda x: x, 4) == (
        "the function of a table fails for 2 operands: TypeError: test_a_table_of_a_function_that_fails_is_refused."
        "<locals>.<lambda>() takes 1 positional argument but 2 were given"
    )


def test_a_table_is_made_of_a_formula() -> None:
    table = lookup(lambda x, y: Value(x) ^ Value(y), 4, expressions=True).table
    np.testing.assert_array_equal(table, lookup(lambda x, y: x ^ y, 4).table)


def test_a_table_is_made_of_c_functions() -> None:
    table = lookup(create_lower_func({8: "toupper"}), 8, 1).table
    assert bytes(table[list(b"graft 8")]) == b"GRAFT 8"
    assert message(lookup, create_lower_func({8: "toupper"}), 4, 1) == (
        "a table of 4 bits needs the C function of that width"
    )


@pytest.mark.parametrize("symbols", [{}, "abs", None])
def test_symbols_must_go_by_width(symbols: object) -> None:
    assert message(create_lower_func, symbols) == f"symbols go by width, as in {{16: 'PositAdd'}}; this is {symbols!r}"


@pytest.mark.parametrize(("width", "symbol"), [("16", "abs"), (16, 5), ((8, 16, 32), "abs")])
def test_a_symbol_must_be_a_name_by_its_width(width: object, symbol: object) -> None:
    assert message(create_lower_func, {width: symbol}) == (
        f"a symbol is a name by its width, or in a Cast by (source bits, bits); {width!r}: {symbol!r} is neither"
    )


def test_a_function_is_found_by_the_width_of_the_custom_type_and_of_a_cast_by_both() -> None:
    extern = Extern({16: "Exp16", (32, 16): "FromFloat", (16, 32): "ToFloat"})
    posit = "custom[posit]16"
    assert (extern.symbol(posit, "float32"), extern.symbol("float32", posit)) == ("FromFloat", "ToFloat")
    assert (extern.symbol(posit), extern.symbol("bool", posit)) == ("Exp16", "Exp16")
    assert (extern.symbol("float32"), extern.symbol("custom[posit]8"), extern.symbol("float32", "float32")) == (
        None,
    ) * 3
    assert (extern.has(posit, None), extern.has("float16", None)) == (True, False)


def test_every_kind_of_lowering_is_one() -> None:
    for given in (Extern({16: "Exp16"}), via("float32"), lookup(np.zeros(256, np.uint8), 8, 1), max):
        assert lowering_of(given, "Exp", "posit") is given


def test_a_width_is_that_of_the_numbers() -> None:
    assert [bits_of(one) for one in ("custom[posit]16", "int16", "float64")] == [16, 16, 64]
