"""Products by constant weights of 4 and 8 bits with scales for blocks, columns, or all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.machine.machine import Machine
from graft.core.machine.rows import ARMV8_A, THUMBV7EM, X86_64_V2, X86_64_V4
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.contractions.narrow_codes import Code
from graft.core.schedule.strategies.contractions.narrow_operand import Narrow, packed_digits
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer, Constant, Load, Variable
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads
from graft.core.types import Type
from graft.runtime.program import Program

TERMS, COLUMNS, BLOCK = 96, 48, 32
KINDS = {
    "uint4": (TensorProto.UINT4, 0, 16),
    "int4": (TensorProto.INT4, -8, 8),
    "uint8": (TensorProto.UINT8, 0, 256),
    "int8": (TensorProto.INT8, -128, 128),
}
RTOL = {np.dtype(np.float32): 2e-6, np.dtype(np.float16): 1e-3}


@dataclass(frozen=True)
class Form:
    """A product as models write it: ``order`` is that of the weights, ``points`` how many zero points there are."""

    kind: str = "uint4"
    rows: int | str = 1
    block: int = BLOCK
    """0: a scale for each column, -1: one for all."""
    points: str = "none"
    order: str = "kn"
    product: str = "MatMul"
    dtype: type = np.float32
    terms: int = TERMS
    columns: int = COLUMNS

    def model(self) -> tuple[onnx.ModelProto, np.ndarray]:
        """Return the model and what its weights stand for, ``[terms, columns]``."""
        random = np.random.default_rng(0)
        code, low, high = KINDS[self.kind]
        dtype = helper.tensor_dtype_to_np_dtype(code)
        weights = random.integers(low, high, (self.terms, self.columns))
        weights[0], weights[1] = low, high - 1
        shape = (self.terms // self.block, self.columns) if self.block > 0 else (1, self.columns)
        scales = (random.random((1, 1) if self.block < 0 else shape) + 0.1).astype(self.dtype)
        points = random.integers(low, high, scales.shape) if self.points == "many" else np.full(scales.shape, high // 2)
        points = np.zeros(scales.shape, int) if self.points == "none" else points
        whole = (weights - _over(points, self.terms)) * _over(scales, self.terms).astype(np.float64)
        arrays = {"w": weights.astype(dtype), "s": scales, "z": points.astype(dtype)}
        if self.order == "nk":
            arrays = {name: np.ascontiguousarray(array.T) for name, array in arrays.items()}
        if self.block <= 0:
            arrays |= {name: arrays[name].reshape(-1 if self.block == 0 else ()) for name in ("s", "z")}
        if self.points == "none":
            del arrays["z"]
        axis = int((self.order == "nk") == (self.block > 0))
        sizes = {"block_size": self.block} if self.block > 0 else {}
        nodes = [helper.make_node("DequantizeLinear", list(arrays), ["whole"], axis=axis, **sizes), *self._products()]
        shapes = {"x": [self.rows, self.terms], "y": [self.rows, self.columns]}
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        x, y = (helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items())
        initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        graph = helper.make_graph(nodes, "product", [x], [y], initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), whole

    def _products(self) -> list[onnx.NodeProto]:
        transposed = self.order == "nk"
        if self.product == "Gemm":
            nodes = [helper.make_node("Gemm", ["x", "whole"], ["product"], transB=int(transposed))]
        else:
            nodes = [helper.make_node("Transpose", ["whole"], ["transposed"], perm=[1, 0])] if transposed else []
            nodes.append(helper.make_node("MatMul", ["x", "transposed" if transposed else "whole"], ["product"]))
        return [*nodes, helper.make_node("Relu", ["product"], ["y"])]


def _over(parameters: np.ndarray, terms: int) -> np.ndarray:
    return parameters.repeat(terms // len(parameters), 0)


def check(form: Form, counts: Sequence[int] = ()) -> Program:
    """Compile a product, compare it with the product of what the weights stand for, and return the program."""
    model, whole = form.model()
    program = graft.compile(model, ["llvm"], strict=True, threads=1)
    for rows in counts or [int(form.rows)]:
        x = np.random.default_rng(1).standard_normal((rows, form.terms)).astype(form.dtype)
        expected = np.maximum(x.astype(np.float64) @ whole, 0)
        tolerance = RTOL[np.dtype(form.dtype)] * np.abs(expected).max()
        np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=0, atol=tolerance)
    return program


def stored(program: Program, dtype: type) -> int:
    """Return the bytes of a program's constants of a type."""
    return sum(array.nbytes for array in program.description.constants.values() if array.dtype == dtype)


@pytest.mark.parametrize("points", ["none", "one", "many"])
@pytest.mark.parametrize("rows", [1, 3, 8, 70])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_widened_in_the_product(kind: str, rows: int, points: str) -> None:
    program = check(Form(kind, rows, points=points))
    assert stored(program, np.float32) == 4 * TERMS // BLOCK * COLUMNS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("product", ["MatMul", "Gemm"])
@pytest.mark.parametrize("order", ["kn", "nk"])
@pytest.mark.parametrize("block", [16, 12, TERMS, 0, -1])
def test_any_order_and_any_blocks_stay_narrow(kind: str, product: str, order: str, block: int) -> None:
    program = check(Form(kind, 2, block, "many", order, product))
    assert stored(program, np.float32) <= 4 * COLUMNS * (TERMS // block if block > 0 else 1)


@pytest.mark.parametrize("kind", ["uint4", "int8"])
def test_one_program_takes_any_number_of_rows(kind: str) -> None:
    program = check(Form(kind, "rows", points="many"), [1, 2, 7, 64, 131])
    assert stored(program, np.float32) == 4 * TERMS // BLOCK * COLUMNS


@pytest.mark.parametrize("kind", ["uint4", "int8"])
@pytest.mark.parametrize("rows", [1, 9])
def test_weights_of_float16_products_stay_narrow(kind: str, rows: int) -> None:
    program = check(Form(kind, rows, points="many", dtype=np.float16))
    scales = stored(program, np.float16) // 2 + stored(program, np.float32) // 4  # by what the machine computes in
    assert scales == TERMS // BLOCK * COLUMNS


@pytest.mark.parametrize(("kind", "word"), [("int4", np.int32), ("uint4", np.int32), ("int8", np.int8)])
def test_weights_take_no_more_memory_than_their_bits(kind: str, word: type) -> None:
    form = Form(kind, terms=512, columns=256)
    assert stored(check(form), word) == form.terms * form.columns * (8 if word is np.int8 else 4) // 8


@pytest.mark.parametrize(("kind", "bits"), [("int4", 4), ("int8", 8)])
@pytest.mark.parametrize("rows", [1, 4, 8, 9])
def test_weights_take_no_more_memory_on_a_processor_without_vectors(kind: str, bits: int, rows: int) -> None:
    model, whole = (form := Form(kind, rows, points="many")).model()
    compiled = graft.compile(model, ["c_source"], strict=True, threads=1, target="generic")
    sizes = [array.nbytes for array in compiled.description.constants.values()]
    points = TERMS // BLOCK * COLUMNS
    assert sum(sizes) == form.terms * form.columns * bits // 8 + points + 4 * points
    x = np.random.default_rng(1).standard_normal((rows, TERMS)).astype(np.float32)
    expected = np.maximum(x.astype(np.float64) @ whole, 0)
    np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_zero_points_that_are_all_alike_take_no_memory() -> None:
    assert stored(check(Form(points="one")), np.uint8) == 0


@pytest.mark.parametrize("machine", [X86_64_V2, X86_64_V4, ARMV8_A, THUMBV7EM], ids=lambda machine: machine.name)
def test_any_width_of_vectors_gives_the_same(machine: Machine) -> None:
    stages = parse_stages("""
        input x: float32[6, 16]
        input w: uint8[16, 48]
        input s: float32[2, 48]
        input z: uint8[2, 48]
        stage y: float32[6, 48] at (i, j) = reduce add over k < 16 from float32(0.0):
            x[i, k] * (cast<float32>((cast<int32>(w[k, j]) & int32(15)) - cast<int32>(z[k / 8, j])) * s[k / 8, j])
          as contraction()
    """)
    buffers = {load.buffer.name: load.buffer for load in loads(stages[-1].value)}
    random = np.random.default_rng(0)
    arrays = {buffers[name]: random.standard_normal(b.dims(buffers[name])).astype(np.float32) for name in ("x", "s")}
    arrays |= {buffers[name]: random.integers(0, 16, b.dims(buffers[name]), np.uint8) for name in ("w", "z")}
    constants = {buffer: array for buffer, array in arrays.items() if buffer.name != "x"}
    inputs, outputs = tuple(arrays), (stages[-1].buffer,)
    kernel = Kernel("product", inputs, outputs, tuple(stages), Trait.CONTRACTION, constants=constants)
    scheduled = schedule(kernel, Target(machine))
    verify(scheduled.function, machine)
    (result,) = run_function(scheduled.function, [scheduled.packed.get(one, arrays[one]) for one in inputs])
    expected = run_stages(stages, arrays)[outputs[0]]
    assert scheduled.strategy == "narrow_weights"
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


def narrow(terms: int, columns: int, bits: int, low: int) -> Narrow:
    """Return a product whose weights are packed, of one block of terms."""
    source = Buffer("w", "int8", (b.index(terms), b.index(columns)))
    load = Load(source, (Variable("k"), Variable("n")))
    zero = Constant(0, Type("float32"))
    return Narrow(None, load, zero, zero, Variable("block"), terms, Code(bits, low))  # type: ignore[arg-type]


def test_eight_terms_of_a_column_share_a_word_the_first_in_its_lowest_bits() -> None:
    weights = np.arange(-8, 8, dtype=np.int8).reshape(8, 2)
    words = packed_digits(weights, narrow(8, 2, 4, -8), 1).view(np.uint32)
    assert [f"{word:08x}" for word in words] == ["eca86420", "fdb97531"]


def test_panels_of_bytes_follow_each_other_the_last_one_padded() -> None:
    weights = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    digits = packed_digits(weights, narrow(2, 3, 8, 128), 2)
    assert digits.tolist() == [-127, -126, -124, -123, -125, 0, -122, 0]
