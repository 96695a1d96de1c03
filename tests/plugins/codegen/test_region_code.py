"""What a refusal of an emitter or a compiler says of the model."""

from __future__ import annotations

import pytest

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import Buffer, Function, Store
from graft.errors import CompileError
from graft.plugins.codegen.region_code import CollectedFunctions, RegionCode, naming_nodes

Y = Buffer("y", "float32", (b.index(1),))


def function(name: str, *origin: str) -> Function:
    return Function(name, (Y,), 1, Store(Y, (b.index(0),), b.constant(0, "float32")), origin=origin)


def refuse(functions: object) -> None:
    raise CompileError("function 'second' has a nut, which nobody cracks", function="second")


def test_the_nodes_of_the_refused_function_are_named() -> None:
    code = CollectedFunctions(refuse)  # type: ignore[arg-type]
    for one in (function("first", "a"), function("second", "conv", "relu")):
        code.add(one)
    with pytest.raises(CompileError) as caught:
        code.module()
    assert caught.value.message == "'conv', 'relu': function 'second' has a nut, which nobody cracks"
    assert caught.value.function == "second"


def test_a_refusal_of_no_known_function_stays_as_it_is() -> None:
    error = CompileError("no object defines 'x'")
    with pytest.raises(CompileError) as caught, naming_nodes(function("first", "a")):
        raise error
    assert caught.value is error


def test_what_takes_functions_must_say_what_becomes_of_them() -> None:
    class Half(RegionCode):
        def add(self, *_: object) -> None: ...

    with pytest.raises(TypeError, match=r"abstract method '?module'?"):
        Half()  # type: ignore[abstract]
