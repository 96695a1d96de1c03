"""What may be registered, and what the registry says when it may not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from graft.core.tensor_ir.ir import Expression
from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes.arrays import decode
from graft.datatypes.conversion import convert
from graft.datatypes.lowering import create_lower_func, lookup, via
from graft.datatypes.posit import Posit
from graft.datatypes.registry import Datatype, DatatypeRegistry
from graft.datatypes.shipped import DATATYPES, register_float
from graft.errors import DatatypeError, GraftError


@pytest.fixture
def registry() -> DatatypeRegistry:
    own = DatatypeRegistry()
    own.register("takum", 150, owner="plugin 'takum'")
    own.register("posit", format=lambda bits: Posit(bits) if bits in (8, 16) else None, widths=(8, 16))
    return own


def message(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    return caught.value.message


def test_a_name_belongs_to_who_registered_it_first(registry: DatatypeRegistry) -> None:
    assert message(registry.register, "takum", owner="plugin 'other'") == (
        "datatype 'takum' is registered already, by plugin 'takum'; plugin 'other' must choose another name"
    )


def test_a_code_belongs_to_one_datatype(registry: DatatypeRegistry) -> None:
    assert message(registry.register, "other", 150) == (
        "code 150 belongs to datatype 'takum', registered by plugin 'takum'; choose another code for 'other' or leave "
        "it out"
    )


def test_a_name_is_made_of_letters_and_digits(registry: DatatypeRegistry) -> None:
    assert message(registry.register, "my type") == (
        "'my type' cannot name a datatype; use letters, digits and single underscores"
    )


def test_an_unknown_datatype_is_named_with_the_nearest(registry: DatatypeRegistry) -> None:
    assert message(registry.format, "custom[posits]16") == ("datatype 'posits' is not registered; did you mean 'posit'")


def test_a_type_string_must_have_a_name_and_bits(registry: DatatypeRegistry) -> None:
    assert message(registry.format, "custom[posit]") == (
        "'custom[posit]' is not a custom datatype; write custom[name]bits, as in custom[posit]16"
    )


def test_a_width_without_format_is_named_with_those_that_have_one(registry: DatatypeRegistry) -> None:
    assert message(registry.format, "custom[posit]12") == (
        "datatype 'posit' has no width 12; its types are custom[posit]8, custom[posit]16"
    )


def test_an_unknown_operation_is_named_with_the_nearest(registry: DatatypeRegistry) -> None:
    assert message(registry.register_op, via("float32"), "Addd", "llvm", "takum") == (
        "there is no operation 'Addd' of custom datatypes; did you mean 'Add'"
    )


def test_a_misspelt_identity_is_named_with_the_nearest(registry: DatatypeRegistry) -> None:
    assert message(registry.register_op, via("float32"), "Lowst", "llvm", "takum") == (
        "there is no operation 'Lowst' of custom datatypes; did you mean 'Lowest'"
    )


@pytest.mark.parametrize("ends", [("takum", "flot32"), ("flot32", "takum")])
def test_a_cast_from_or_to_an_unknown_type_is_refused_at_once(
    registry: DatatypeRegistry, ends: tuple[str, str]
) -> None:
    assert message(registry.register_op, via("float32"), "Cast", "llvm", *ends) == (
        "'flot32' is neither a registered datatype nor a type of ONNX; did you mean 'float32'"
    )


def test_a_cast_needs_its_source(registry: DatatypeRegistry) -> None:
    assert message(registry.register_op, via("float32"), "Cast", "llvm", "takum") == (
        "a Cast to 'takum' needs the datatype that it casts from; write register_op(lowering, 'Cast', 'llvm', 'takum', "
        "'float32')"
    )


def test_a_lowering_without_a_backend_serves_all_of_them(registry: DatatypeRegistry) -> None:
    lowering = via("float32")
    registry.register_op(lowering, "Add", datatype="takum")
    assert {registry.lowering("Add", backend, "custom[takum]16") for backend in ("llvm", "npu", None)} == {lowering}


def test_a_lowering_for_a_backend_goes_before_that_for_all(registry: DatatypeRegistry) -> None:
    own, general = via("float64"), via("float32")
    registry.register_op(own, "Add", "npu", "takum")
    registry.register_op(general, "Add", None, "takum")
    assert registry.lowering("Add", "npu", "custom[takum]16") is own
    assert {registry.lowering("Add", backend, "custom[takum]16") for backend in ("llvm", None)} == {general}


def test_what_is_registered_for_one_backend_is_none_of_another(registry: DatatypeRegistry) -> None:
    own = via("float32")
    registry.register_op(own, "Add", "npu", "takum")
    assert registry.lowering("Add", "llvm", "custom[takum]16") is None
    assert registry.lowering("Add", None, "custom[takum]16") is own, "without a backend any will do"


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


def test_a_table_of_other_than_bits_and_operands_of_the_operation_is_refused() -> None:
    register_truncated("tabled")
    for bits, operands in ((4, 2), (8, 1)):
        table = np.zeros(1 << bits * operands, np.uint8)
        DATATYPES.register_op(lookup(table, bits, operands), "Add", "llvm", "tabled")
        assert message(convert, sums("float32"), "custom[tabled]8") == (
            f"the table of Add of custom[tabled]8 is for {operands} operands of {bits} bits; make one for 2 of 8 bits"
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


def test_a_cast_between_types_without_a_rule_is_missing() -> None:
    if "ruleless" not in DATATYPES:
        DATATYPES.register("ruleless")
        DATATYPES.register_op(via("float32"), "Add", "llvm", "ruleless")
    proto = sums("float32", nodes=2)
    assert message(convert, proto, "custom[posit]16", types={"second": "custom[ruleless]16"}) == (
        "model 'sums': there is no lowering of Cast from custom[ruleless]16 to float32, Cast from float32 "
        "to custom[ruleless]16; register each with graft.datatypes.register_op"
    )


def test_bits_are_decoded_not_floats() -> None:
    assert message(decode, np.zeros(3), "custom[posit]16") == (
        "custom[posit]16 is decoded from storage bits, uint16; these are float64"
    )


@pytest.mark.parametrize(("exponent", "mantissa"), [(11, 20), (-1, 2), (0, 2), (4, 0)])
def test_a_small_float_has_widths_that_float32_carries(exponent: int, mantissa: int) -> None:
    assert message(register_float, "odd", exponent, mantissa) == (
        f"a float has 2 to 8 exponent bits and 1 to 10 mantissa bits; 'odd' has {exponent} and {mantissa}"
    )


def register_truncated(name: str) -> None:
    """Register a type whose bits are the first of a float32's, as far as a sum needs it."""
    if name in DATATYPES:
        return
    DATATYPES.register(name)
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


def test_the_shipped_datatypes_are_registered() -> None:
    assert {row.name for row in DATATYPES} >= {
        "posit", "posit_es0", "posit_es1", "float", "bfloat", "float8e4m3fn", "float8e5m2", "float8e4m3fnuz",
        "float8e5m2fnuz", "fixed", "lns",
    }  # fmt: skip


def test_a_small_float_is_registered_in_one_line() -> None:
    register_float("fp6e3m2", 3, 2, infinities=False, saturate=True)
    format = DATATYPES.format("custom[fp6e3m2]6")
    assert format is not None
    assert format.largest == 14.0  # the top exponent is NaN's


def test_datatype_errors_are_graft_errors() -> None:
    assert issubclass(DatatypeError, GraftError)


def test_plugins_are_asked_for_an_unknown_datatype_once(registry: DatatypeRegistry) -> None:
    asked = []

    def discover() -> None:
        asked.append(1)
        registry.admit(Datatype("posit24", formats=lambda bits: Posit(24), widths=(24,)), "plugin 'more'")

    registry.discover = discover
    assert registry.format("custom[posit24]24") == Posit(24)
    message(registry.format, "custom[nothing]8")
    assert len(asked) == 1


def test_a_plugin_must_bring_datatypes(registry: DatatypeRegistry) -> None:
    assert message(registry.admit, ("posit", 150), "plugin 'old'") == (
        "plugin 'old': graft_datatypes gave tuple; give graft.datatypes.Datatype objects"
    )
