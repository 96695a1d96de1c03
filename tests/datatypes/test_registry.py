"""What may be registered, and what the registry says when it may not."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_a_cast_needs_its_source(registry: DatatypeRegistry) -> None:
    assert message(registry.register_op, via("float32"), "Cast", "llvm", "takum") == (
        "a Cast to 'takum' needs the datatype that it casts from; write register_op(lowering, 'Cast', 'llvm', 'takum', "
        "'float32')"
    )


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
