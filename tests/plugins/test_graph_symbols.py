"""Which axes of a graph's inputs say its symbols, and other extents in terms of them."""

from __future__ import annotations

from random import Random

import pytest

from graft.core.affine.text import parsed
from graft.errors import GraftError
from graft.plugins.graph_symbols import GraphSymbols, ModelSymbols
from graft.plugins.json_graph import GraphSymbol
from graft.runtime.extents import Extent, Symbol, evaluate


def read(text: str) -> Extent:
    extent = parsed(text)
    assert extent is not None
    return extent


def symbols(*shapes: tuple[str, ...]) -> GraphSymbols:
    names = [f"x{number}" for number in range(len(shapes))]
    return GraphSymbols.of(names, [tuple(map(read, shape)) for shape in shapes])


def test_the_first_axis_that_is_a_symbol_alone_binds_it() -> None:
    found = symbols(("n + 1", "n"), ("m", "n"))
    assert list(found) == [GraphSymbol("n", 0, 1), GraphSymbol("m", 1, 0)]
    assert found.said(read("n + 1")) == read("n + 1")
    assert found.said(read("2*n + m")) == read("2*n + m")


def test_the_only_unknown_of_a_sum_is_given_by_subtraction_and_division() -> None:
    found = symbols(("past",), ("2*seq + past",))
    assert list(found) == [GraphSymbol("past", 0, 0), GraphSymbol("x1_0", 1, 0)]
    assert found.said(read("2*seq + past")) == Symbol("x1_0")
    assert found.said(Symbol("seq")) == read("(x1_0 - past)//2")


def test_what_no_input_tells_is_not_said() -> None:
    found = symbols(
        ("n",),
    )
    assert found.said(Symbol("m")) is None
    assert found.said(read("n + m")) is None
    assert found.said(None) is None
    assert found.said(7) == 7
    assert found.shape(None) is None
    assert found.shape((Symbol("n"), Symbol("m"), 3, None)) == (Symbol("n"), None, 3, None)


def test_an_extent_of_two_unknowns_has_a_symbol_of_its_own() -> None:
    found = symbols(("a*b",))
    assert list(found) == [GraphSymbol("x0_0", 0, 0)]
    assert found.said(read("a*b")) == Symbol("x0_0")
    assert found.said(read("a*b + 4")) == read("x0_0 + 4")
    assert found.said(Symbol("a")) is None


def test_quotients_are_told_beside_the_one_that_has_a_symbol() -> None:
    found = symbols(
        ("h//2",),
    )
    assert found.said(read("h//2 + 4")) == read("x0_0 + 4")
    assert found.said(read("(h + 2)//4")) == read("(x0_0 + 1)//2")
    assert found.said(read("h//4")) == read("x0_0//2")
    assert found.said(read("h//3")) is None
    assert found.said(read("(h + 1)//4")) is None


def test_a_name_that_is_taken_is_not_given_again() -> None:
    found = GraphSymbols.of(["x0"], [(read("a*b"), Symbol("x0_0"))])
    assert len({one.name for one in found}) == 2


@pytest.mark.parametrize("seed", range(40))
def test_what_is_said_has_the_value_of_the_extent(seed: int) -> None:
    draw = Random(seed)
    extents = ["n", "m", "2*n + m", "n//2", "n*m", "3*n - 1 + m", "(n + 5)//4", "min(n, m)", "max(n, 4) + m"]
    shapes = [tuple(draw.sample(extents, 2)) for _ in range(2)]
    found = symbols(*shapes)
    values = {"n": draw.randint(1, 20), "m": draw.randint(1, 20)}
    own = {one.name: evaluate(read(shapes[one.input][one.axis]), values) for one in found}
    for text in extents:
        said = found.said(read(text))
        if said is not None:
            try:
                assert evaluate(said, own) == evaluate(read(text), values)
            except GraftError:
                pytest.fail(f"{said} has no value for {own}")


def test_the_models_own_symbols_say_every_extent_as_it_is() -> None:
    model = ModelSymbols()
    assert model.said(read("n + m")) == read("n + m")
    assert model.said(None) is None
