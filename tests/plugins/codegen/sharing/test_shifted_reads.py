"""Kernels that read a box of a tensor: one for all places at which it may begin, whose elements are the right ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft

TAPS = [(0, 0), (0, 2), (1, 1), (2, 2)]


def taps(steps: int, places: list[tuple[int, int]] = TAPS) -> onnx.ModelProto:
    """Slices of an image, each transposed: one for each place of a window of 3 x 3."""
    parts, span = [], 4 * steps + 1
    for number, (top, left) in enumerate(places):
        parts.append(
            f"a{number} = Constant<value_ints = [{top}, {left}]>() b{number} = Constant<value_ints = "
            f"[{top + span}, {left + span}]>() s{number} = Slice(x, a{number}, b{number}, axes, steps) "
            f"r{number} = Reshape(s{number}, flat) y{number} = Transpose<perm = [1, 0]>(r{number})"
        )
    outputs = ", ".join(f"float[25,6] y{number}" for number in range(len(places)))
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[6,{span + 2},{span + 2}] x) => ({outputs})
        <int64[2] axes = {{1, 2}}, int64[2] steps = {{{steps}, {steps}}}, int64[2] flat = {{6, 25}}>
        {{ {" ".join(parts)} }}"""
    )


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("backend", ["llvm", "c_source"])
def test_slices_at_all_places_share_a_kernel(steps: int, backend: str) -> None:
    program = graft.compile(taps(steps), [backend], strict=True, cache=False)
    assert len({call.function for call in program.description.procedures[0].calls if call.kind == "call"}) == 1
    span = 4 * steps + 1
    x = np.random.default_rng(0).normal(size=(6, span + 2, span + 2)).astype(np.float32)
    found = program.run({"x": x})
    for number, (top, left) in enumerate(TAPS):
        part = x[:, top : top + span : steps, left : left + span : steps]
        np.testing.assert_array_equal(found[f"y{number}"], part.reshape(6, 25).T)


def test_what_is_read_at_two_places_keeps_its_kernel() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[8] x) => (float[6] y)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] six = {6}, int64[1] eight = {8}> {
            a = Slice(x, zero, six) b = Slice(x, two, eight) y = Add(a, b) }"""
    )
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(graft.compile(model, ["llvm"]).run({"x": x})["y"], x[:6] + x[2:])
