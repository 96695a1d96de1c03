"""What may be registered, and what the registry says when it may not."""

from __future__ import annotations

import pytest

from graft.datatypes.lowering import via
from graft.datatypes.posit import Posit
from graft.datatypes.registry import Datatype, DatatypeRegistry
from graft.errors import DatatypeError, GraftError


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


def test_a_datatype_of_lowerings_alone_has_the_widths_that_it_states(registry: DatatypeRegistry) -> None:
    assert registry.format("custom[takum]16") is None
    assert message(registry.format, "custom[takum]8") == (
        "datatype 'takum' has no width 8; its types are custom[takum]16"
    )
    registry.register("other")
    assert registry.format("custom[other]24") is None, "where none are stated, it has any"


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
