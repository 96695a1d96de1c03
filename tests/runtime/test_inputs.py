from dataclasses import dataclass

import numpy as np
import pytest

from graft.errors import InputError
from graft.runtime.inputs import facts, inputs_of
from graft.runtime.program import TensorInfo


@dataclass
class Program:
    inputs: tuple[TensorInfo, ...]


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


@pytest.mark.parametrize("shape", [None, ("batch", 3)])
def test_an_input_of_unknown_shape_must_be_given(shape):
    with pytest.raises(InputError) as caught:
        inputs_of(Program((TensorInfo("x", "float32", shape),)), (), 0)
    assert caught.value.message == "input 'x' has no static shape; give it with --input x=@FILE.npy"


def test_facts_give_the_range_of_an_array():
    arrays = {"y": np.array([1, -3], np.float32), "empty": np.zeros((0, 2), np.int64)}
    assert facts(arrays) == [
        {"name": "y", "dtype": "float32", "shape": [2], "min": -3.0, "mean": -1.0, "max": 1.0},
        {"name": "empty", "dtype": "int64", "shape": [0, 2]},
    ]
