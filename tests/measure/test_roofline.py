"""Limits of the machine, and what a call may take by them."""

import numpy as np
import pytest
from onnx import parser

import graft
from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target, host_target, target_named
from graft.measure import roofline_kernels
from graft.measure.roofline import SIZES, Roofline, Traffic, achieved, measure_roofline, traffic_of
from graft.measure.roofline_kernels import peak_flops, read_bandwidth
from graft.runtime.extents import Symbol
from graft.runtime.procedure import Call, Procedure, ProgramDescription, TensorSpec

ROOFLINE = Roofline(2, 100e9, ((1000, 80e9), (100_000, 20e9), (10_000_000, 10e9)))


def test_data_is_read_as_fast_as_the_level_that_holds_it() -> None:
    rates = [ROOFLINE.bytes_per_second(size) for size in (1, 1000, 1001, 10_000_001)]
    assert rates == [80e9, 80e9, 20e9, 10e9]


def test_a_call_is_limited_by_arithmetic_or_by_what_it_moves() -> None:
    assert ROOFLINE.seconds(Traffic(1000, 0, 0, 0)) == pytest.approx(1000 / 100e9 / 2)
    moving = Traffic(1000, 400, 800, 50_000)
    assert ROOFLINE.seconds(moving) == pytest.approx((400 / 20e9 + 800 / 80e9) / 2)


def test_what_a_call_achieves_is_told_in_rates_and_against_its_limit() -> None:
    found = achieved(Traffic(2000, 0, 400, 0), 20, ROOFLINE)
    assert found == pytest.approx({"gflops": 100, "gbytes": 20, "of_limit": 50})
    assert achieved(Traffic(2000, 0, 400, 0), 20, None)["of_limit"] == 0


def test_the_traffic_of_a_call_is_that_of_its_tensors() -> None:
    tensors = (
        TensorSpec("x", "float16", (4, 8), "input", index=0),
        TensorSpec("w", "float32", (8,), "constant", constant="w"),
        TensorSpec("y", "float32", (4, 8), "output", index=0),
    )
    call = Call("call", (0, 1, 0), (2,), module=0, function="f", flops=7)
    constants = {"w": np.zeros(8, np.float32), "v": np.zeros(8, np.float32)}
    description = ProgramDescription((Procedure("main", tensors, (0,), (2,), (call,)),), (), constants)
    assert traffic_of(description, description.procedures[0]) == [
        Traffic(flops=7, weights=32, others=64 + 128, footprint=64)
    ]


def test_a_tensor_of_unknown_extents_counts_nothing() -> None:
    tensors = (
        TensorSpec("x", "float32", (Symbol("batch"), 8), "input", index=0),
        TensorSpec("s", "float32", None, "dynamic"),
        TensorSpec("y", "float32", (2,), "output", index=0),
    )
    procedure = Procedure("main", tensors, (0,), (2,), (Call("call", (0, 1), (2,), module=0, function="f", flops=1),))
    assert [one.others for one in traffic_of(ProgramDescription((procedure,), (), {}), procedure)] == [8]


def test_a_roofline_is_of_the_target_asked_for_and_else_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Target] = []
    monkeypatch.setattr(roofline_kernels, "peak_flops", lambda target: asked.append(target) or 5.0)
    monkeypatch.setattr(roofline_kernels, "read_bandwidth", lambda size, target: asked.append(target) or 1.0 * size)
    other = target_named("x86-64-v3")
    found = measure_roofline(3, other)
    assert (found.threads, found.flops) == (3, 5.0)
    assert [limit for limit, _ in found.bandwidth] == sorted(SIZES) and all(
        limit == rate for limit, rate in found.bandwidth
    )
    assert all(target is other for target in asked)
    asked.clear()
    measure_roofline()
    assert {*asked} == {host_target()}


PRODUCT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, seq, 8] x, float[8, 4] w) => (float[batch, seq, 4] y) { y = MatMul(x, w) }"""


def test_a_call_of_varying_shapes_counts_with_the_shapes_of_the_run() -> None:
    program = graft.compile(parser.parse_model(PRODUCT), ["llvm"])
    arrays = np.ones((3, 5, 8), np.float32), np.ones((8, 4), np.float32)
    procedure, _ = program.timed(*arrays)
    (call,) = traffic_of(program.description, procedure, [array.shape for array in arrays])
    assert (call.flops, call.others) == (2 * 15 * 8 * 4, 4 * (15 * 8 + 8 * 4 + 15 * 4))


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3"])
def test_the_limits_are_measured_for_other_targets_too(level: str) -> None:
    assert all(peak_flops(target_named(level), dot) > 0 for dot in ("", *DOTS))
    assert read_bandwidth(1 << 14, target_named(level)) > 0
