import numpy as np
import pytest

from graft.core.tensor_ir.interpreting import interpreter
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import (
    Axis,
    Binary,
    Buffer,
    Cast,
    Constant,
    Intrinsic,
    Load,
    Reduction,
    Select,
    Stage,
    Variable,
)
from graft.core.types import FLOAT32, INT64


def index(value):
    return Constant(value, INT64)


def tensor(name, shape, dtype="float32"):
    return Buffer(name, dtype, tuple(index(extent) for extent in shape))


def matmul_stage(m, n, k):
    a, b, c = tensor("a", (m, k)), tensor("b", (k, n)), tensor("c", (m, n))
    i, j, p = (Variable(name) for name in "ijp")
    value = Binary("mul", Load(a, (i, p)), Load(b, (p, j)))
    reduced = Variable("s", FLOAT32)
    epilogue = Binary("max", reduced, Constant(0.0, FLOAT32))
    reduction = Reduction("add", (Axis(p, index(k)),), Constant(0.0, FLOAT32))
    return a, b, Stage(c, (i, j), value, reduction, reduced, epilogue)


def test_a_reduction_with_epilogue_is_a_matrix_product(monkeypatch):
    monkeypatch.setattr(interpreter, "CHUNK", 40)  # so that both output and reduction axes are cut
    a, b, stage = matmul_stage(7, 5, 33)
    random = np.random.default_rng(0)
    left, right = random.standard_normal((7, 33), np.float32), random.standard_normal((33, 5), np.float32)
    result = run_stages([stage], {a: left, b: right})[stage.buffer]
    np.testing.assert_allclose(result, np.maximum(left @ right, 0), rtol=1e-5, atol=1e-5)


def test_a_masked_load_reads_zero_outside():
    x, y, i = tensor("x", (3,)), tensor("y", (5,)), Variable("i")
    shifted = Binary("sub", i, index(1))
    inside = Binary("and", Binary("ge", shifted, index(0)), Binary("lt", shifted, index(3)))
    stage = Stage(y, (i,), Load(x, (shifted,), inside))
    result = run_stages([stage], {x: np.array([1, 2, 3], np.float32)})[y]
    np.testing.assert_array_equal(result, [0, 1, 2, 3, 0])


def test_an_index_outside_is_an_assertion_with_buffer_and_place():
    x, y, i = tensor("x", (3,)), tensor("y", (4,)), Variable("i")
    with pytest.raises(AssertionError, match=r"^index 3 is outside dimension 0 of 'x' \(3\)$"):
        run_stages([Stage(y, (i,), Load(x, (i,)))], {x: np.zeros(3, np.float32)})


def test_stages_read_what_earlier_stages_wrote():
    x, y, z = tensor("x", (2, 3)), tensor("y", (2, 3)), tensor("z", (3, 2))
    i, j = Variable("i"), Variable("j")
    first = Stage(y, (i, j), Intrinsic("exp", (Load(x, (i, j)),), FLOAT32))
    second = Stage(z, (j, i), Load(y, (i, j)))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(
        run_stages([first, second], {x: data})[z], np.exp(data.astype(np.float64)).T.astype(np.float32)
    )


def test_symbolic_extents_come_from_the_arrays():
    n, i, j = Variable("n"), Variable("i"), Variable("j")
    x = Buffer("x", "float32", (n,))
    y = Buffer("y", "float32", (Binary("mul", n, index(2)),))
    total = tensor("total", ())
    double = Stage(y, (i,), Load(x, (Binary("div", i, index(2)),)))
    add = Stage(total, (), Load(y, (j,)), Reduction("add", (Axis(j, y.shape[0]),), Constant(1.0, FLOAT32)))
    result = run_stages([double, add], {x: np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(result[y], [1, 1, 2, 2, 3, 3])
    assert result[total] == 13


def test_an_empty_reduction_is_its_initial_value():
    x, y, i, j = tensor("x", (2, 0)), tensor("y", (2,)), Variable("i"), Variable("j")
    stage = Stage(y, (i,), Load(x, (i, j)), Reduction("max", (Axis(j, index(0)),), Constant(-1.0, FLOAT32)))
    np.testing.assert_array_equal(run_stages([stage], {x: np.zeros((2, 0), np.float32)})[y], [-1, -1])


def test_a_shared_subexpression_is_evaluated_once():
    x, y, i = tensor("x", (1,)), tensor("y", (1,)), Variable("i")
    value = Load(x, (i,))
    for _ in range(200):
        value = Binary("add", value, value)
    result = run_stages([Stage(y, (i,), value)], {x: np.full(1, 2.0**-150, np.float32) * 0})
    assert result[y][0] == 0


def test_select_takes_one_arm_and_casts_convert():
    x, y, i = tensor("x", (3,)), tensor("y", (3,), "int8"), Variable("i")
    value = Select(Binary("lt", Load(x, (i,)), Constant(0.0, FLOAT32)), Constant(7.0, FLOAT32), Load(x, (i,)))
    result = run_stages([Stage(y, (i,), Cast(value, "int8"))], {x: np.array([-1, 300, np.nan], np.float32)})
    np.testing.assert_array_equal(result[y], np.array([7, 127, 0], np.int8))
