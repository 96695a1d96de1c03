"""Procedures under construction whose tensors have symbols in their shapes."""

from __future__ import annotations

import onnx
import pytest

import graft
from graft.compiler.stitching.procedure_builder import ProcedureBuilder
from graft.compiler.stitching.symbol_binding import Unbound, bound_symbols, bounds_of, checkable
from graft.runtime.extents import ExtentEquation, Operation, Symbol
from graft.runtime.procedure import Call, ExtentBound, SymbolSpec, TensorSpec

BATCH, SEQ, FOUND = Symbol("batch"), Symbol("seq"), Symbol("found")


def call(inputs: list[int], outputs: list[int]) -> Call:
    return Call("call", tuple(inputs), tuple(outputs), module=0, function="f")


def test_symbols_are_bound_by_the_first_axis_that_is_one_of_them_alone():
    builder = ProcedureBuilder("main", ranges={SEQ: (1, 512), BATCH: (0, None), Symbol("unused"): (2, 2)})
    x = builder.add_input("x", "float32", (Operation("mul", 2, SEQ), BATCH))
    mask = builder.add_input("mask", "bool", (BATCH, SEQ))
    y = builder.result("y", "float32", (BATCH, SEQ))
    builder.calls.append(call([x, mask], [y]))
    procedure = builder.finish([y], ["y"])
    assert procedure.symbols == (SymbolSpec("batch", 0, None, 0, 1), SymbolSpec("seq", 1, 512, 1, 1))
    assert (procedure.arena_bytes, procedure.arena_bound) == (0, 0)


def test_what_a_call_finds_out_is_bound_by_its_result():
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (SEQ,))
    nonzero = builder.result("nonzero", "int64", (1, FOUND), is_dynamic=True)
    y = builder.result("y", "float32", (FOUND,))
    builder.calls += [call([x], [nonzero]), call([nonzero], [y])]
    procedure = builder.finish([y, nonzero], ["y", "n"])
    assert procedure.symbols == (SymbolSpec("seq", 0, None, 0, 0), SymbolSpec("found", 0, None, 1, 1))
    assert [tensor.storage for tensor in procedure.tensors] == ["input", "output", "output"]


def test_what_is_said_of_operations_and_equations_is_kept_where_all_their_symbols_are_bound():
    of_two, of_one, other = Operation("add", BATCH, SEQ), Operation("mul", 2, SEQ), Operation("mul", 2, FOUND)
    ranges = {of_two: (2, 9), SEQ: (1, 8), other: (0, 4), of_one: (2, None)}
    symbols = [SymbolSpec("seq", 1, 8, 0, 0), SymbolSpec("batch", 1, 1, 0, 1), SymbolSpec("free", 0, None, 0, 2)]
    assert bounds_of(symbols, ranges) == (ExtentBound(of_two, 2, 9), ExtentBound(of_one, 2, None))
    assert [one.extent for one in bounds_of(symbols[:2], ranges)] == [of_two, of_one]
    says = ("", " and ", "")
    both, again, foreign = (
        ExtentEquation(left, BATCH, "equal", (place, *says[1:]))
        for left, place in ((SEQ, "first "), (SEQ, "second "), (FOUND, "third "))
    )
    assert checkable([both, again, foreign], symbols[:2]) == (both,)
    assert checkable([both, again, foreign], symbols) == (both,)


def test_a_result_that_is_left_out_binds_nothing_and_the_first_tensor_may_be_one():
    tensors = [TensorSpec("found", "float32", (FOUND,), "output"), TensorSpec("other", "float32", (SEQ,), "output")]
    calls = [call([], [0, -1]), call([], [1])]
    assert bound_symbols(tensors, (), calls, {}) == (
        SymbolSpec("found", 0, None, 0, 0), SymbolSpec("seq", 0, None, 1, 0)
    )  # fmt: skip
    with pytest.raises(Unbound, match="seq"):
        bound_symbols(tensors, (), calls[:1], {})


def test_a_symbol_that_nothing_binds_is_a_bug():
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (Operation("mul", 2, SEQ),))
    with pytest.raises(AssertionError, match=r"^nothing binds the symbols \['seq'\]"):
        builder.finish([x], ["y"])


def test_a_view_of_a_tensor_with_symbols_is_written_straight_into_the_output():
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (SEQ, 4))
    t = builder.result("t", "float32", (SEQ, 4))
    flat = builder.add(TensorSpec("flat", "float32", (Operation("mul", 4, SEQ),), "view", of=t))
    builder.calls.append(call([x], [t]))
    procedure = builder.finish([flat], ["y"])
    assert [(tensor.name, tensor.storage, tensor.of) for tensor in procedure.tensors] == [
        ("x", "input", -1), ("y", "output", -1), ("t", "view", 1)
    ]  # fmt: skip


def test_extents_are_returned_by_a_copy():
    builder = ProcedureBuilder("main")
    builder.add_input("x", "float32", (SEQ,))
    shape = builder.add(TensorSpec("shape", "int64", (1,), "extents", values=(SEQ,)))
    procedure = builder.finish([shape], ["y"])
    assert procedure.calls == (Call("copy", (1,), (2,)),)


def test_an_inlined_region_keeps_its_extents_and_what_it_finds_out():
    region = ProcedureBuilder("region")
    a = region.add_input("a", "float32", (SEQ,))
    e = region.add(TensorSpec("e", "int64", (1,), "extents", values=(SEQ,)))
    found = region.result("found", "int64", (FOUND,), is_dynamic=True)
    region.calls.append(call([a, e], [found]))
    compiled = region.finish([found], ["found"])
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (SEQ,))
    results = builder.inline(compiled, [x], 0, {})
    assert [(one.storage, one.shape) for one in builder.tensors] == [
        ("input", (SEQ,)), ("extents", (1,)), ("dynamic", (FOUND,))
    ]  # fmt: skip
    assert builder.finish(results, ["y"]).symbols[1] == SymbolSpec("found", 0, None, 2, 0)


def test_planning_anew_keeps_symbols_and_their_ranges():
    builder = ProcedureBuilder("main", ranges={"seq": (1, 512)})
    x = builder.add_input("x", "float32", (SEQ,))
    t, y = builder.result("t", "float32", (SEQ,)), builder.result("y", "float32", (SEQ,))
    builder.calls += [call([x], [t]), call([t], [y])]
    procedure = builder.finish([y], ["y"])
    assert ProcedureBuilder.reopen(procedure).replan() == procedure


def test_what_binds_a_symbol_is_copied_to_an_output_that_views_it():
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (3,))
    found = builder.result("found", "float32", (FOUND, 2), is_dynamic=True)
    builder.calls.append(call([x], [found]))
    flat = builder.add(TensorSpec("flat", "float32", (Operation("mul", 2, FOUND),), "view", of=found))
    procedure = builder.finish([flat], ["y"])
    assert [one.kind for one in procedure.calls] == ["call", "copy"]
    assert procedure.symbols == (SymbolSpec("found", 0, None, 1, 0),)


def test_a_tensor_of_more_axes_than_the_runtime_takes_is_refused() -> None:
    shape = ", ".join("1" * 33)
    text = f'<ir_version: 10, opset_import: ["" : 22]> g (float[{shape}] x) => (float[{shape}] y) {{ y = Neg(x) }}'
    with pytest.raises(graft.errors.UnsupportedError) as caught:
        graft.compile(onnx.parser.parse_model(text), ["reference"])
    assert str(caught.value) == (
        "'x' has rank 33, and a tensor of a program has at most 32 axes; join some of them by a Reshape"
    )
