"""Results over what they are computed from: which kernels allow it, and that they compute the same there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.target import CompileOptions, host_target
from graft.core.tensor_ir.parser import parse_function
from graft.plugins.backend import CompiledRegion
from graft.plugins.llvm.backend import LlvmBackend
from graft.plugins.llvm.emit import emit_ir
from tests.plugins.llvm.graphs import region_of


def compiled(
    text: str, constants: dict[str, np.ndarray] | None = None, without: tuple[str, ...] = ()
) -> CompiledRegion:
    target = replace(host_target(), without=frozenset(without))
    return LlvmBackend().compile(region_of(text, constants), CompileOptions(target))


ONE = np.ones((3, 1), np.float32)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("(float[2,3] x, float[2,3] r) => (float[2,3] y) { a = Add (x, r)  y = Relu (a) }", (0, 1)),
        ("(float[2,3] x, float[3] r) => (float[2,3] y) { y = Add (x, r) }", (0,)),
        ("(float[2,3] x, float[2,1] r) => (float[2,3] y) { y = Mul (r, x) }", (1,)),
        ("(float[1,3] x, float[3] r) => (float[1,3] y) { a = Relu (x)  y = Mul (a, r) }", (0,)),
        ("(float[2,3] x) => (int32[2,3] y) { y = Cast <to = 6> (x) }", (0,)),
        ("(float[2,3] x) => (double[2,3] y) { y = Cast <to = 11> (x) }", ()),
        ("(float[3,3] x) => (float[3,3] y) { a = Transpose (x)  y = Neg (a) }", ()),
        ("(float[3,3] x) => (float[3,3] y) { a = Transpose (x)  y = Add (a, x) }", ()),
        ("(float[2,3] x) => (float[2,3] y) { y = Softmax (x) }", ()),
        ("(float[3,3] w, float[3,3] x) => (float[3,3] y) { y = MatMul (x, w) }", ()),
    ],
)
def test_a_result_may_stand_on_what_is_read_where_it_is_written(text: str, allowed: tuple[int, ...]) -> None:
    *_, last = compiled(f"g {text}").procedure.calls
    assert last.in_place == allowed


def test_constants_are_never_written_over() -> None:
    region = compiled("g (float[3,1] x, float[3,1] w) => (float[3,1] y) { y = Add (x, w) }", {"w": ONE})
    assert region.procedure.calls[0].in_place == (0,)


def test_without_in_place_no_result_may_stand_on_another() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }"
    assert compiled(text, without=("in-place",)).procedure.calls[0].in_place == ()


@pytest.mark.parametrize("shape", [(5,), (3, 17), (40, 700), (2, 3, 33)])
@pytest.mark.parametrize(
    "body", ["a = Sigmoid (x)  y = Mul (a, x)", "a = Add (x, r)  y = Relu (a)", "a = Mul (r, x)  y = Max (a, x)"]
)
def test_in_place_the_result_is_the_same(shape: tuple[int, ...], body: str, load_image) -> None:
    dims = ",".join(map(str, shape))
    region = compiled(f"g (float[{dims}] x, float[{shape[-1]}] r) => (float[{dims}] y) {{ {body} }}")
    ((call,), (module,)) = region.procedure.calls, region.modules
    generator = np.random.default_rng(4)
    given = [
        generator.standard_normal(region.procedure.tensors[index].shape).astype(np.float32) for index in call.inputs
    ]
    image, apart = load_image(module.data), np.empty(shape, np.float32)
    assert image.status(call.function, given, [apart]) == 0
    assert call.in_place
    for position in call.in_place:
        again = [array.copy() for array in given]
        assert image.status(call.function, again, [again[position]]) == 0
        np.testing.assert_array_equal(again[position], apart)


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_only_what_may_overlap_is_not_noalias(kind: str) -> None:
    head = "function f(x: float32[90000], a: float32[90000], z: float32[90000]) -> (y: float32[90000]) in_place 0, 2"
    text = f"{head} {{ {kind} i < 90000 {{ y[i] = x[i] + a[i] * z[i] }} }}"
    code = emit_ir(parse_function(text), host_target())
    heads = [line for line in code.splitlines() if line.startswith("define") and ".body" in line]
    assert len(heads) == (2 if kind == "parallel" else 1)
    assert all(line.count("noalias") == 1 for line in heads)
    assert "noalias" in code.split("%p1")[0].split(",")[-1]
