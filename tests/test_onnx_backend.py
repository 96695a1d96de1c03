"""The interface by which ONNX's tools drive a backend."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.backend.base import Backend

import graft.onnx_backend as backend
from graft.errors import ArgumentError, InputError, ModelError, UnsupportedError

MODEL = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> g (float[2] a, float[2] b) => (float[2] sum, float[2] product) {
      sum = Add(a, b)
      product = Mul(a, b)
    }"""
)
A, B = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
SPLIT = onnx.helper.make_node("Split", ["x"], ["y", "z"], axis=0, num_outputs=2)


def test_graft_is_a_backend_of_onnx() -> None:
    assert issubclass(backend.GraftBackend, Backend)


@pytest.mark.parametrize("inputs", [[A, B], (A, B), {"b": B, "a": A}])
def test_outputs_have_the_order_and_the_names_of_the_model(inputs: object) -> None:
    results = backend.prepare(MODEL, backends=["llvm"], threads=1).run(inputs)
    np.testing.assert_array_equal(results[0], A + B)
    np.testing.assert_array_equal(results["product"], A * B)


def test_run_model_compiles_and_runs() -> None:
    (result,) = backend.run_model(onnx.parser.parse_model(ONE), A, backends=["llvm"])
    np.testing.assert_array_equal(result, -A)


ONE = '<ir_version: 10, opset_import: ["" : 21]> g (float[2] a) => (float[2] y) { y = Neg(a) }'


def test_a_subclass_fixes_options() -> None:
    class Alone(backend.GraftBackend):
        options = {"backends": ["reference"]}  # noqa: RUF012 - read alone

    kinds = {module.kind for module in Alone.prepare(MODEL).program.description.modules}
    assert kinds == {"reference"}


def test_a_node_runs_with_types_that_are_inferred() -> None:
    first, second = backend.run_node(SPLIT, [np.arange(4, dtype=np.float32)], backends=["llvm"])
    assert (first.tolist(), second.tolist()) == ([0, 1], [2, 3])


def test_a_node_runs_in_the_opset_that_is_given() -> None:
    node = onnx.helper.make_node("Squeeze", ["x"], ["y"], axes=[0])
    (result,) = backend.run_node(node, [np.zeros((1, 2), np.float32)], opset_version=11)
    assert result.shape == (2,)


def test_the_types_of_outputs_may_be_said() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    (result,) = backend.run_node(node, {"x": -A}, outputs_info=[(np.dtype(np.float32), (2,))])
    assert result.tolist() == [0, 0]


def test_the_cpu_is_the_one_device() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    with pytest.raises(UnsupportedError) as caught:
        backend.prepare(MODEL, "CUDA")
    assert str(caught.value) == "device 'CUDA' is not supported; give CPU"


def test_what_is_wrong_is_told() -> None:
    prepared = backend.prepare(MODEL, backends=["llvm"])
    cases = [
        (lambda: prepared.run([A, B], warm=1), InputError, "run takes no options, got 'warm'; give them to prepare"),
        (lambda: backend.run_node(SPLIT, [A, B]), InputError, "Split has 1 inputs, got 2; give an array for each"),
        (lambda: backend.run_node(SPLIT, [object()]), InputError, "input 'x' is no array: "),
        (
            lambda: backend.run_node(onnx.helper.make_node("Nothing", ["x"], ["y"], name="n"), [A]),
            ModelError,
            "Nothing (node 'n'): operator set 'ai.onnx' has no operator 'Nothing'; did you mean 'Not'",
        ),
        (lambda: prepared.run(5), ArgumentError, "PreparedModel.run: inputs is int 5; give a list of arrays in the"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value).startswith(message)
