"""What only moves elements: by whole vectors, tiles and periods, against NumPy, for extents that fit no vector."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.core.machine.target import target_named
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Function
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.printer import print_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads
from graft.runtime.dtypes import numpy_dtype

DTYPES = {"float": np.float32, "float16": np.float16, "double": np.float64, "int8": np.int8, "int64": np.int64}


def compiled(text: str) -> graft.Program:
    """Compile a graph in ONNX's text."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    return graft.compile(graft.load(model), ["llvm"], threads=1, cache=False)


def numbers(shape: tuple[int, ...], kind: str = "float") -> np.ndarray:
    return (np.arange(np.prod(shape)) % 113).astype(DTYPES[kind]).reshape(shape)


def loops(text: str) -> Function:
    """Return one stage in loops for a machine with vectors of 16 floats and without masks' cost."""
    stages = parse_stages(text)
    read = tuple(dict.fromkeys(load.buffer for load in loads(stages[-1].value)))
    kernel = Kernel("f", read, (stages[-1].buffer,), tuple(stages), Trait.INJECTIVE)
    function = schedule(kernel, target_named("x86-64-v4")).function
    verify(function)
    return function


@pytest.mark.parametrize("kind", sorted(DTYPES))
@pytest.mark.parametrize("repeats", [(1, 3, 2), (2, 1, 1), (1, 1, 5), (3, 2, 4)])
def test_tiles_of_a_tensor_are_repeated(kind: str, repeats: tuple[int, ...]) -> None:
    x = numbers((3, 7, 19), kind)
    wanted = np.tile(x, repeats)
    shape = ",".join(map(str, wanted.shape))
    times = f"int64[3] r = {{{', '.join(map(str, repeats))}}}"
    program = compiled(f"({kind}[3,7,19] x) => ({kind}[{shape}] y) <{times}> {{ y = Tile (x, r) }}")
    np.testing.assert_array_equal(program(x), wanted)


def test_an_axis_of_whole_periods_divides_no_index() -> None:
    function = loops("input a: float32[3, 24]\nstage c: float32[6, 72] at (i, j) = a[i % 3, j % 24] as elementwise()")
    text = print_function(function)
    assert "%" not in text, text
    x = numbers((3, 24))
    np.testing.assert_array_equal(run_function(function, [x.ravel()])[0], np.tile(x, (2, 3)).ravel())


def test_a_row_that_begins_anew_is_read_in_parts() -> None:
    function = loops("input a: float32[41]\nstage c: float32[4, 46] at (i, j) = a[(j + 38) % 41] as elementwise()")
    assert "%" not in print_function(function)
    x = numbers((41,))
    np.testing.assert_array_equal(run_function(function, [x])[0], np.tile(np.pad(x, (3, 2), "wrap"), 4))


@pytest.mark.parametrize("factor", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["float", "float16", "int8"])
def test_neighbours_that_many_lanes_share_are_read_once(factor: int, kind: str) -> None:
    x = numbers((1, 2, 5, 23), kind)
    shape = f"1,2,{5 * factor},{23 * factor}"
    settings_ = 'coordinate_transformation_mode = "asymmetric", mode = "nearest", nearest_mode = "floor"'
    program = compiled(
        f"({kind}[1,2,5,23] x) => ({kind}[{shape}] y) <float[4] s = {{1.0, 1.0, {factor}.0, {factor}.0}}> "
        f"{{ y = Resize <{settings_}> (x, , s) }}"
    )
    np.testing.assert_array_equal(program(x), x.repeat(factor, 2).repeat(factor, 3))


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("kind", sorted(DTYPES))
def test_channels_are_interleaved_by_vectors(channels: int, kind: str) -> None:
    x = numbers((channels, 77), kind)
    program = compiled(f"({kind}[{channels},77] x) => ({kind}[77,{channels}] y) {{ y = Transpose (x) }}")
    np.testing.assert_array_equal(program(x), x.T)
    assert numpy_dtype(program.inputs[0].dtype) == x.dtype


@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("extent", [16, 47, 64, 97])
@pytest.mark.parametrize("kind", ["float", "double", "int8"])
def test_every_nth_element_is_read_and_nothing_behind_the_last(kind: str, extent: int, step: int) -> None:
    x = numbers((3, extent), kind)
    wanted = x[:, ::step]
    bounds = f"int64[1] b = {{0}}, int64[1] e = {{{extent}}}, int64[1] a = {{1}}, int64[1] s = {{{step}}}"
    program = compiled(
        f"({kind}[3,{extent}] x) => ({kind}[3,{wanted.shape[1]}] y) <{bounds}> {{ y = Slice (x, b, e, a, s) }}"
    )
    np.testing.assert_array_equal(program(x), wanted)
