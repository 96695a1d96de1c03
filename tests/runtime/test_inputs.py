from dataclasses import dataclass

import numpy as np
import pytest

from graft.errors import InputError
from graft.runtime.extents import Symbol
from graft.runtime.inputs import facts, inputs_of
from graft.runtime.procedure import Procedure, ProgramDescription, SymbolSpec, TensorSpec
from graft.runtime.tensor_info import TensorInfo


@dataclass
class Program:
    inputs: tuple[TensorInfo, ...]
    symbols: tuple[SymbolSpec, ...] = ()

    @property
    def description(self):
        tensors = tuple(TensorSpec(one.name, one.dtype, extents(one.shape), "input") for one in self.inputs)
        procedure = Procedure("main", tensors, tuple(range(len(tensors))), (), (), symbols=self.symbols)
        return ProgramDescription((procedure,), (), {})


def extents(shape):
    return None if shape is None else tuple(Symbol(one) if isinstance(one, str) else one for one in shape)


X = Program((TensorInfo("x", "float32", (2, 3)),))


def test_inputs_that_are_not_given_are_seeded_samples():
    program = Program(
        (TensorInfo("x", "float32", (2, 3)), TensorInfo("mask", "int64", (4,)), TensorInfo("flag", "bool", ()))
    )
    arrays = inputs_of(program, (), 7)
    assert {name: (array.dtype.name, array.shape) for name, array in arrays.items()} == {
        "x": ("float32", (2, 3)),
        "mask": ("int64", (4,)),
        "flag": ("bool", ()),
    }
    assert set(arrays["mask"].tolist()) <= {0, 1}
    np.testing.assert_equal(inputs_of(program, (), 7), arrays)
    assert inputs_of(program, (), 8)["x"].tolist() != arrays["x"].tolist()


def test_an_input_comes_from_a_file_or_from_json(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    assert inputs_of(X, [("x", f"@{tmp_path}/x.npy")], 0)["x"].tolist() == [[1, 1, 1], [1, 1, 1]]
    typed = inputs_of(X, [("x", "[[1, 2, 3], [4, 5, 6]]")], 0)["x"]
    assert (typed.dtype, typed.shape) == (np.float32, (2, 3))


def test_a_missing_file_is_an_error():
    with pytest.raises(InputError) as caught:
        inputs_of(X, [("x", "@none.npy")], 0)
    assert caught.value.message == "input 'x': cannot read 'none.npy': No such file or directory"


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_array_is_an_error(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        inputs_of(X, [("x", f"@{path}")], 0)
    assert caught.value.message.startswith(f"input 'x': '{path}' is not a .npy file: ")


def test_a_pickled_array_is_never_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError) as caught:
        inputs_of(X, [("x", f"@{tmp_path}/x.npy")], 0)
    assert "allow_pickle=False" in caught.value.message


def test_text_that_is_no_array_is_an_error():
    with pytest.raises(InputError) as caught:
        inputs_of(X, [("x", "[1,")], 0)
    assert caught.value.message.startswith("input 'x': [1, is not an array in JSON: ")


def test_an_input_of_unknown_rank_must_be_given():
    with pytest.raises(InputError) as caught:
        inputs_of(Program((TensorInfo("x", "float32", None),)), (), 0)
    assert caught.value.message == "input 'x' has no known rank; give it with --input x=@FILE.npy"


def test_symbols_have_given_numbers_those_of_given_arrays_or_usual_ones():
    program = Program(
        (TensorInfo("x", "float32", ("batch", "seq")), TensorInfo("y", "float32", ("batch", "width", 3))),
        (SymbolSpec("batch", 0, None, 0, 0), SymbolSpec("seq", 1, 4, 0, 1), SymbolSpec("width", 0, None, 1, 1)),
    )
    assert [array.shape for array in inputs_of(program, (), 0).values()] == [(2, 4), (2, 16, 3)]
    assert [array.shape for array in inputs_of(program, (), 0, {"batch": 5}).values()] == [(5, 4), (5, 16, 3)]
    assert inputs_of(program, [("x", "[[1, 2], [3, 4], [5, 6]]")], 0)["y"].shape == (3, 16, 3)


def test_facts_give_the_range_of_an_array():
    arrays = {"y": np.array([1, -3], np.float32), "empty": np.zeros((0, 2), np.int64)}
    assert facts(arrays) == [
        {"name": "y", "dtype": "float32", "shape": [2], "min": -3.0, "mean": -1.0, "max": 1.0},
        {"name": "empty", "dtype": "int64", "shape": [0, 2]},
    ]
