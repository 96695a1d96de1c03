"""Whole functions of the emitter: tasks, several in an image, other machines, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.machine.target import host_target, target_named
from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Block,
    Buffer,
    CallExtern,
    Constant,
    For,
    Function,
    Load,
    Store,
    Variable,
)
from graft.core.tensor_ir.parser import parse_function
from graft.core.types import Type
from graft.errors import CompileError
from graft.plugins.llvm.emit import compile_functions, compile_object, emit_ir
from tests.plugins.llvm.kernels import LANES, map_function, vector


def big_parallel(scratch: int = 0) -> Function:
    """``out[i, j] = 2 * x[j] + i`` over 40 x 30 x 16, in parallel, through ``scratch`` floats if any."""
    x, out = vector("x", "float32", 480), Buffer("out", "float32", (b.index(40), b.index(480)))
    i, j, k = Variable("i"), Variable("j"), Variable("k")
    place = b.add(b.multiply(j, 16), k)
    value = b.add(b.multiply(Load(x, (place,)), 2.0), b.cast(i, "float32"))
    if scratch:
        memory = Buffer("memory", "float32", (b.index(scratch),), memory="scratch")
        inner = For(
            k, b.index(16), "serial", Block((Store(memory, (k,), value), Store(out, (i, place), Load(memory, (k,)))))
        )
        body = Allocate(memory, inner)
    else:
        body = For(k, b.index(16), "serial", Store(out, (i, place), value))
    return Function("kernel", (x, out), 1, For(i, b.index(40), "parallel", For(j, b.index(30), "parallel", body)))


@pytest.mark.parametrize("scratch", [0, 64, 100000])
def test_parallel_loops_are_tasks(scratch: int, load_image) -> None:
    function = big_parallel(scratch)
    image = load_image(compile_functions([function], host_target()))
    x = np.arange(480, dtype="float32")
    output = np.zeros((40, 480), "float32")
    assert image.status("kernel", [x], [output]) == 0
    np.testing.assert_array_equal(output, 2 * x + np.arange(40, dtype="float32")[:, None])
    assert image.parts == [(0, 600), (600, 1200)]


def test_a_failed_allocation_ends_the_function(load_image) -> None:
    image = load_image(compile_functions([big_parallel(100000)], host_target()))
    image.scratch_left = 1000
    assert image.status("kernel", [np.zeros(480, "float32")], [np.zeros((40, 480), "float32")]) == 1


def test_small_parallel_loops_stay_serial(load_image) -> None:
    x, out, i = vector("x", "float32", 4), vector("out", "float32", 4), Variable("i")
    body = For(i, b.index(4), "parallel", Store(out, (i,), Load(x, (i,))))
    image = load_image(compile_functions([Function("kernel", (x, out), 1, body)], host_target()))
    output = np.zeros(4, "float32")
    assert image.status("kernel", [np.ones(4, "float32")], [output]) == 0
    assert image.parts == []
    np.testing.assert_array_equal(output, 1)


def test_symbolic_extents_come_from_the_tensors(load_image) -> None:
    n, i = Variable("n"), Variable("i")
    x, out = Buffer("x", "float32", (n,)), Buffer("out", "float32", (n,))
    body = For(i, n, "parallel", Store(out, (i,), b.multiply(Load(x, (i,)), 3.0)))
    image = load_image(compile_functions([Function("kernel", (x, out), 1, body)], host_target()))
    for size in (0, 7, 100000):
        array, output = np.arange(size, dtype="float32"), np.zeros(size, "float32")
        assert image.status("kernel", [array], [output]) == 0
        np.testing.assert_array_equal(output, 3 * array)


def test_several_functions_share_an_image(load_image) -> None:
    functions = [
        map_function("float32", ["float32"], lambda x, n=n: Binary("add", x, Constant(n, Type("float32", LANES))))
        for n in (1.0, 2.0)
    ]
    named = [Function(f"kernel{n}", f.parameters, 1, f.body) for n, f in enumerate(functions)]
    image = load_image(compile_functions(named, host_target()))
    for number in range(2):
        output = np.zeros(256, "float32")
        assert image.status(f"kernel{number}", [np.zeros(256, "float32")], [output]) == 0
        np.testing.assert_array_equal(output, number + 1)


def test_code_is_made_for_another_machine() -> None:
    image = compile_functions([big_parallel(64)], target_named("armv8-a"))
    assert image[:8] == b"GRAFTIMG"
    assert image[12:16] == (183).to_bytes(4, "little")


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(CompileError) as error:
        compile_functions([big_parallel()], target_named("generic"))
    assert str(error.value) == (
        "the built-in compiler has no code generator for 'generic'; it has x86_64, aarch64, riscv64, wasm32, thumb"
    )


@pytest.mark.parametrize("name", ["thumbv7em", "wasm32", "wasm32+simd128"])
def test_where_no_runtime_is_a_kernel_is_a_function_of_pointers(name: str) -> None:
    target = target_named(name)
    text = emit_ir(big_parallel(), target)
    assert "define i32 @kernel(ptr %context, ptr " in text
    assert "%state" not in text
    assert "@kernel.task" not in text
    assert compile_object(big_parallel(), target)[:4] == (b"\0asm" if target.arch == "wasm32" else b"\x7fELF")


def test_a_call_of_an_external_symbol_is_refused() -> None:
    with pytest.raises(CompileError) as error:
        compile_functions([Function("kernel", (), 0, CallExtern("puts", ()))], host_target())
    assert str(error.value) == (
        "function 'kernel' calls the external symbol 'puts'; native code of the built-in compiler has no external "
        "symbols"
    )


@pytest.mark.parametrize(
    ("body", "lacking"),
    [
        ('parallel i < 4 bind "block.x" { y[i] = x[i] }', "level 'block' on the machine 'native', which has thread"),
        ('barrier "queue"', "level 'queue' on the machine 'native', which has thread"),
        ('issue "load" { }', "level 'load' on the machine 'native', which has thread"),
        (
            "allocate t: float32[4] in shared",
            "memory 'shared' on the machine 'native', which has scratch, host, register",
        ),
    ],
)
def test_levels_and_memories_that_a_processor_lacks_are_refused(body: str, lacking: str) -> None:
    function = parse_function(f"function kernel(x: float32[4]) -> (y: float32[4]) {{ {body} }}")
    with pytest.raises(CompileError) as error:
        compile_functions([function], host_target())
    assert str(error.value) == f"function 'kernel': no {lacking}"
