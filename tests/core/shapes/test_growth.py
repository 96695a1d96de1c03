"""Compile time and memory of extents: what a chain of any length does grows with its length, and no extent with it.

Time is not measured: the calls within the algebra and the inference of shapes are counted, of one length and of twice
that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import onnx
import pytest

import graft
from graft.core.affine.equations import Equation
from graft.core.affine.expressions import equal, is_at_least, maximum, minimum, multiply
from graft.core.affine.size import MOST_OPERATIONS, operations
from graft.core.affine.text import parsed
from graft.core.importer.load import load
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.runtime.extents import Symbol

Family = Callable[[int, str], str]
POOL = "MaxPool <kernel_shape = [3], strides = [2], "


def chain(first: str, step: Callable[[int], str], inputs: str, rank: int) -> Family:
    """Return the texts of graphs of n nodes after another; ``own`` makes the names of one graph its own."""

    def family(n: int, own: str) -> str:
        body = " ".join(f"v{i} = {step(i)}" for i in range(1, n))
        output = f"float[{','.join('?' * rank)}] v{n - 1}"
        given = ", ".join(inputs.replace("#", str(i)) for i in range(n)) if "#" in inputs else inputs
        return f"g ({given}) => ({output}) {{ v0 = {first} {body} }}".replace("@", own)

    return family


FAMILIES: dict[str, Family] = {
    "sums of inputs with names of their own": chain(
        "Neg (x0)", lambda i: f"Add (v{i - 1}, x{i})", "float[d@#] x#", 1
    ),
    "sums of higher rank": chain(
        "Neg (x0)", lambda i: f"Add (v{i - 1}, x{i})", "float[d@#, e@#, f@#] x#", 3
    ),
    "choices": chain("Neg (x0)", lambda i: f"Where (c{i}, v{i - 1}, x{i})", "float[d@#] x#, bool[e@#] c#", 1),
    "pools": chain(f"{POOL}ceil_mode = 1> (x)", lambda i: f"{POOL}ceil_mode = 1> (v{i - 1})", "float[1, 1, h@] x", 3),
    "pools with pads": chain(
        f"{POOL}pads = [1, 1]> (x)", lambda i: f"{POOL}pads = [1, 1]> (v{i - 1})", "float[1, 1, h@] x", 3
    ),
    "joined and doubled": chain(
        "Neg (x)", lambda i: f"Concat <axis = 0> (v{i - 1}, {'x' if i % 2 else f'v{i - 1}'})", "float[h@] x", 1
    ),
    "products": chain("Neg (x0)", lambda i: f"MatMul (v{i - 1}, x{i})", "float[d@#, e@#] x#", 2),
}  # fmt: skip


def one_sum(n: int, own: str) -> str:
    """Return the text of a Sum of n inputs."""
    given = ", ".join(f"float[d{own}{i}] x{i}" for i in range(n))
    return f"g ({given}) => (float[?] y) {{ y = Sum ({', '.join(f'x{i}' for i in range(n))}) }}"


FAMILIES["one sum"] = one_sum
SIZES = {
    "sums of inputs with names of their own": (40, 80), "sums of higher rank": (40, 80), "choices": (40, 80),
    "one sum": (100, 200), "pools with pads": (140, 280),
}  # fmt: skip
"""Of those that grow at other lengths than 12 and 24: beyond the budget of one extent."""


def steps_of(
    work: Callable[[], object],
    folders: tuple[str, ...] = ("/core/affine/", "/core/graph/", "/core/shapes/", "/core/importer/"),
) -> int:
    """Return how many calls some work makes within folders."""
    count = 0

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call" and any(folder in frame.f_code.co_filename for folder in folders):
            count += 1

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


LONG = {"one sum", "pools", "pools with pads", "sums of higher rank"}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] if one in LONG else []) for one in FAMILIES]
)
def test_a_chain_takes_steps_as_it_is_long(name: str) -> None:
    sizes = SIZES.get(name, (12, 24))
    models = [
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {FAMILIES[name](n, f"_{n}_")}')
        for n in sizes
    ]
    short, long = (steps_of(lambda model=model: load(model)) for model in models)  # type: ignore[misc]
    assert long < 2.6 * short + 2000, (short, long)
    loaded = load(models[1])
    extents = [one for node in loaded.graph for value in node.outputs for one in dimensions_of(value) or ()]
    assert None not in extents
    assert max(operations(one) for one in extents if one is not None) <= MOST_OPERATIONS


@pytest.mark.parametrize(
    "inputs", ["float[s] x#", pytest.param("float[d@#] x#", marks=pytest.mark.slow)], ids=["one name", "own names"]
)
def test_a_plan_takes_steps_as_a_sum_is_long(inputs: str) -> None:
    family = chain("Neg (x0)", lambda i: f"Add (v{i - 1}, x{i})", inputs, 1)
    models = [
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {family(n, f"_{n}_")}') for n in (4, 40, 80)
    ]
    graft.plan(models[0], ["llvm", "reference"])  # brings the plugins in
    folders = ("/core/graph/view", "/core/operators/", "/patterns/")
    short, long = (
        steps_of(lambda model=model: graft.plan(model, ["llvm", "reference"]), folders)  # type: ignore[misc]
        for model in models[1:]
    )
    assert long < 2.3 * short, (short, long)


def test_two_bindings_say_that_a_proof_is_not_to_be_had() -> None:
    names = [Symbol(f"n{number}") for number in range(8)]
    shared = multiply(maximum(*names), minimum(*names, 1))
    assert steps_of(lambda: is_at_least(shared, 2)) < 500
    assert equal(shared, names[0]) is None
    assert steps_of(lambda: Equation(shared, names[1], "broadcast").holds()) < 1500


def test_an_extent_that_is_too_large_is_a_symbol_within_its_bounds() -> None:
    text = FAMILIES["sums of inputs with names of their own"](40, "")
    model = load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}'))
    fresh = {
        one.name
        for node in model.graph
        for one in dimensions_of(node.outputs[0]) or ()
        if isinstance(one, Symbol) and not one.name.startswith("d")
    }
    assert fresh
    assert all(name.startswith("v") for name in fresh)


@pytest.mark.parametrize(
    "text", ["s+" + "9" * 5000, "9" * 20, "+".join("s" for _ in range(2000)), "(" * 5000 + "s" + ")" * 5000]
)
def test_a_text_beyond_reason_is_no_expression(text: str) -> None:
    assert parsed(text) is None


def test_a_text_of_many_factors_is_read_at_once() -> None:
    text = "*".join(f"a{number}" for number in range(60))
    assert steps_of(lambda: parsed(text)) < 20_000
