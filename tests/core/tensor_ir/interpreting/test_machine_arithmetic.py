import numpy as np
import pytest

from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Block,
    Broadcast,
    Buffer,
    CallExtern,
    Constant,
    For,
    Function,
    Horizontal,
    If,
    Intrinsic,
    Let,
    Load,
    Ramp,
    Shuffle,
    Store,
    Variable,
)
from graft.core.tensor_ir.parser import parse_function
from graft.core.types import BOOL, FLOAT32, INT64, Type


def index(value):
    return Constant(value, INT64)


def tensor(name, shape, dtype="float32", memory="host"):
    return Buffer(name, dtype, tuple(index(extent) for extent in shape), memory=memory)


def test_a_vector_sum_with_masked_tail_and_scratch():
    x, total, partial = tensor("x", (11,)), tensor("total", ()), tensor("partial", (4,), memory="register")
    block = Variable("block")
    lanes = Ramp(index(0), 1, 4)
    place = Ramp(Binary("mul", block, index(4)), 1, 4)
    mask = Binary("lt", place, Broadcast(index(11), 4))
    step = Store(partial, (lanes,), Binary("add", Load(partial, (lanes,)), Load(x, (place,), mask)))
    body = Block(
        (
            Store(partial, (lanes,), Broadcast(Constant(0.0, FLOAT32), 4)),
            For(block, index(3), "serial", step),
            Store(total, (), Horizontal("add", Load(partial, (lanes,)))),
        )
    )
    function = Function("total", (x, total), 1, Allocate(partial, body))
    assert run_function(function, [np.arange(11, dtype=np.float32)])[0] == 55


def test_a_masked_store_leaves_the_other_lanes_alone():
    x, y = tensor("x", (4,)), tensor("y", (4,))
    lanes = Ramp(index(0), 1, 4)
    mask = Binary("ge", lanes, Broadcast(index(2), 4))
    body = Block(
        (
            Store(y, (lanes,), Load(x, (lanes,))),
            Store(y, (lanes,), Broadcast(Constant(9.0, FLOAT32), 4), mask),
        )
    )
    result = run_function(Function("f", (x, y), 1, body), [np.arange(4, dtype=np.float32)])[0]
    np.testing.assert_array_equal(result, [0, 1, 9, 9])


def test_parallel_iterations_that_depend_on_each_other_give_another_result():
    x, y, i = tensor("x", (4,)), tensor("y", (4,)), Variable("i")
    before = Load(y, (Binary("max", Binary("sub", i, index(1)), index(0)),))
    first = If(Binary("eq", i, index(0)), Store(y, (i,), Load(x, (i,))), Store(y, (i,), before))
    serial, parallel = (
        run_function(Function("f", (x, y), 1, For(i, index(4), kind, first)), [np.ones(4, np.float32)])[0]
        for kind in ("serial", "parallel")
    )
    np.testing.assert_array_equal(serial, np.ones(4))
    assert np.isnan(parallel[1:]).all()


def test_variables_of_strides_are_those_of_the_array():
    text = """function f(x: float32[2, n, 3] strides [pitch, 3, 1]) -> (y: float32[2], z: int64[1]) {
      y[0] = x[0, n - 1, 2]
      y[1] = x[1, n - 1, 2]
      z[0] = pitch
    }"""
    buffer = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
    last, pitch = run_function(parse_function(text), [buffer[:, :2]])
    np.testing.assert_array_equal(last, [5, 20])
    assert pitch == [15]


def test_unwritten_memory_is_poison():
    x, y = tensor("x", ()), tensor("y", (3,), "int32")
    result = run_function(Function("f", (x, y), 1, Block(())), [np.float32(0)])[0]
    np.testing.assert_array_equal(result, np.full(3, 0xA5A5A5A5, np.uint32).view(np.int32))


def test_an_unmasked_access_outside_is_an_assertion():
    x, y, i = tensor("x", (3,)), tensor("y", (4,)), Variable("i")
    loop = For(i, index(4), "serial", Store(y, (i,), Load(x, (i,))))
    with pytest.raises(AssertionError, match=r"^index 3 is outside dimension 0 of 'x' \(3\)$"):
        run_function(Function("f", (x, y), 1, loop), [np.zeros(3, np.float32)])


def test_let_shuffle_and_gather():
    x, y, v = tensor("x", (4,)), tensor("y", (4,)), Variable("v", Type("float32", 4))
    reversed_lanes = Load(x, (Ramp(index(3), -1, 4),))
    even = Shuffle((v, v), (0, 2, 4, 6))
    function = Function("f", (x, y), 1, Let(v, reversed_lanes, Store(y, (Ramp(index(0), 1, 4),), even)))
    np.testing.assert_array_equal(run_function(function, [np.arange(4, dtype=np.float32)])[0], [3, 1, 3, 1])


def test_fused_multiply_add_rounds_once():
    x, y = tensor("x", (1,)), tensor("y", (1,))
    value = Load(x, (index(0),))
    body = Store(y, (index(0),), Intrinsic("fma", (value, value, Constant(-1.0, FLOAT32)), FLOAT32))
    one_more = np.float32(1 + 2**-12)
    result = run_function(Function("f", (x, y), 1, body), [np.full(1, one_more)])[0][0]
    assert float(result) == 2**-11 + 2**-24


def test_scalar_integers_wrap_and_divide_towards_zero():
    x, y = tensor("x", (2,), "int64"), tensor("y", (3,), "int64")
    a, b = Load(x, (index(0),)), Load(x, (index(1),))
    body = Block(
        tuple(Store(y, (index(place),), Binary(operator, a, b)) for place, operator in enumerate(("div", "mod", "mul")))
    )
    result = run_function(Function("f", (x, y), 1, body), [np.array([-7, 2**62 + 1], np.int64)])[0]
    assert result.tolist() == [0, -7, 2**62 - 7]
    result = run_function(Function("f", (x, y), 1, body), [np.array([-7, 2], np.int64)])[0]
    assert result.tolist() == [-3, -1, -14]


def test_an_extern_gets_addresses_of_elements():
    x, y, i = tensor("x", (2, 3)), tensor("y", (2, 3)), Variable("i")

    def copy_row(source, target, count):
        target[:count] = source[:count]

    call = CallExtern("copy_row", (Load(x, (i, index(0))), Load(y, (i, index(0))), index(3)))
    function = Function("f", (x, y), 1, For(i, index(2), "serial", call))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run_function(function, [data], externs={"copy_row": copy_row})[0], data)


def test_a_condition_with_all_lanes_off_touches_nothing():
    x, y = tensor("x", (1,)), tensor("y", (1,))
    far = Ramp(index(100), 1, 4)
    off = Broadcast(Constant(False, BOOL), 4)
    value = Horizontal("add", Load(x, (far,), off))
    result = run_function(Function("f", (x, y), 1, Store(y, (index(0),), value)), [np.ones(1, np.float32)])[0]
    assert result[0] == 0
