from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from graft.errors import ArtifactError, CancelledError, DeadlineError, GraftError, InputError, RunError
from graft.runtime._native import CancelToken
from graft.runtime.dtypes import ELEMENT_TYPES, numpy_dtype
from graft.runtime.export import c_check, c_project
from graft.runtime.extents import Symbol
from graft.runtime.inputs import inputs_of
from graft.runtime.loaders import PythonLoader
from graft.runtime.packed_values import METADATA
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, SymbolSpec, TensorSpec
from graft.runtime.program import Program

from .programs import call, describe, elementwise, loader, tensor

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def double(shape: tuple[int, ...] = (2, 3), dtype: str = "float32") -> Program:
    return elementwise(lambda inputs: [inputs[0] + inputs[0]], [("x", dtype, shape)], (dtype, shape))


def add() -> Program:
    return elementwise(
        lambda inputs: [inputs[0] + inputs[1]],
        [(name, "float32", (2, 3)) for name in ("left", "right")],
        ("float32", (2, 3)),
    )


def two_outputs() -> Program:
    procedure = Procedure(
        "main",
        (
            tensor("x", "float32", (2,), "input", index=0),
            tensor("copied", "float32", (2,), "output", index=0),
            tensor("found", "int64", None, "output", index=1),
        ),
        (0,),
        (1, 2),
        (Call("copy", (0,), (1,)), call("nonzero", [0], [2])),
    )
    functions = {"nonzero": lambda inputs: [np.flatnonzero(inputs[0])]}
    return Program.from_description(describe(procedure, ["nonzero"]), loaders=[loader(functions)])


# ---- Calls ----------------------------------------------------------------------------------------------------------


def test_one_output_is_an_array() -> None:
    result = double()(X)
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, 2 * X)


def test_several_outputs_are_a_tuple_and_unknown_shapes_are_found() -> None:
    program = two_outputs()
    for values in ([0, 5], [0, 0], [7, 8]):
        x = np.array(values, np.float32)
        copied, found = program(x)
        np.testing.assert_array_equal(copied, x)
        np.testing.assert_array_equal(found, np.flatnonzero(x))
    assert [str(one) for one in program.outputs] == ["float32[2]", "int64"]


def test_memory_of_a_large_output_is_used_again_once_nobody_has_it() -> None:
    shape = (3, 1 << 22)
    x = np.ones(shape, np.float32)
    program = double(shape)
    first = program(x)
    place = first.ctypes.data
    second = program(x)
    assert second.ctypes.data != place, "the first is still there"
    row = first[1]
    del first
    assert program(x).ctypes.data != place, "a view of the first is still there"
    del row
    third = program(x)
    assert third.ctypes.data == place
    del program
    gc.collect()
    np.testing.assert_array_equal(second, 2 * x)
    np.testing.assert_array_equal(third, 2 * x)


def test_every_call_gives_fresh_arrays() -> None:
    program = two_outputs()
    first = program(np.array([1, 2], np.float32))
    second = program(np.array([3, 0], np.float32))
    np.testing.assert_array_equal(first[0], [1, 2])
    np.testing.assert_array_equal(first[1], [0, 1])
    np.testing.assert_array_equal(second[1], [0])
    first[0][:] = 9
    first[1][:] = 9


def test_run_takes_and_returns_names() -> None:
    results = add().run({"right": X, "left": 10 * X})
    assert list(results) == ["y"]
    np.testing.assert_array_equal(results["y"], 11 * X)


def test_a_run_writes_into_arrays_that_are_given() -> None:
    place = np.zeros_like(X)
    results = double().run({"x": X}, into={"y": place})
    np.testing.assert_array_equal(place, 2 * X)
    assert np.shares_memory(results["y"], place)


@pytest.mark.parametrize("place", [np.zeros((3, 2), np.float32), np.zeros((2, 3)), np.zeros((3, 2), np.float32).T])
def test_an_array_that_an_output_does_not_fit_is_refused(place: np.ndarray) -> None:
    with pytest.raises(InputError, match="the buffer of output 'y' is no writeable contiguous array of its type"):
        double().run({"x": X}, into={"y": place})


def test_an_output_is_not_written_over_an_input() -> None:
    with pytest.raises(InputError, match="output 'y' would be written over an input; give another array"):
        double().run({"x": X}, into={"y": X})
    with pytest.raises(InputError, match="output 'y' would be written over an input; give another array"):
        double().run({"x": X}, into={"y": X[:]})


def test_an_array_for_an_unknown_output_is_refused() -> None:
    with pytest.raises(InputError, match="the program has no output 'yy'; did you mean 'y'"):
        double().run({"x": X}, into={"yy": np.zeros_like(X)})


def test_arrays_that_are_given_are_in_main_memory() -> None:
    place = np.zeros_like(X)
    message = "outputs_on is 'gpu', and `into` has arrays of main memory; leave one of them out"
    with pytest.raises(InputError, match=message):
        double().run({"x": X}, "gpu", into={"y": place})
    np.testing.assert_array_equal(double().run({"x": X}, "cpu", into={"y": place})["y"], 2 * X)


def test_inputs_by_name_follow_those_by_position() -> None:
    np.testing.assert_array_equal(add()(X, right=2 * X), 3 * X)
    np.testing.assert_array_equal(add()(left=X, right=2 * X), 3 * X)


def test_inputs_that_are_not_contiguous_are_copied() -> None:
    for x in (np.asfortranarray(X), X[:, ::-1], np.broadcast_to(X[:1], (2, 3)), X.astype(">f4")):
        np.testing.assert_array_equal(double()(x), 2 * x)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_every_element_type_travels(dtype: str) -> None:
    shape = (3,)
    program = elementwise(lambda inputs: [inputs[0].copy()], [("x", dtype, shape)], (dtype, shape))
    x = np.array([0, 1, 1]).astype(numpy_dtype(dtype))
    result = program(x)
    assert result.dtype == numpy_dtype(dtype)
    np.testing.assert_array_equal(result.astype(np.complex64), x.astype(np.complex64))


def test_scalars_and_empty_tensors() -> None:
    np.testing.assert_array_equal(double(())(np.array(3, np.float32)), 6)
    assert double((0, 4))(np.zeros((0, 4), np.float32)).shape == (0, 4)


def test_constants_and_arena_and_absent_inputs() -> None:
    weights = np.array([1, 2, 3], np.float32)
    procedure = Procedure(
        "main",
        (
            tensor("x", "float32", (3,), "input", index=0),
            tensor("w", "float32", (3,), "constant", constant="weights"),
            tensor("t", "float32", (3,), "arena", offset=64),
            tensor("y", "float32", (3,), "output", index=0),
        ),
        (0,),
        (3,),
        (call("add", [0, 1, -1], [2]), call("add", [2, 2, -1], [3])),
        arena_bytes=128,
        arena_bound=12,
    )
    seen = []

    def plus(inputs: list[np.ndarray]) -> list[np.ndarray]:
        seen.append(inputs)
        return [inputs[0] + inputs[1]]

    description = describe(procedure, ["add"], {"weights": weights})
    program = Program.from_description(description, loaders=[loader({"add": plus})])
    np.testing.assert_array_equal(program(weights), 4 * weights)
    assert [len(inputs) for inputs in seen] == [3, 3]
    assert seen[0][2] is None
    assert not any(array.flags.writeable for inputs in seen for array in inputs[:2])
    assert (program.arena_bytes, program.arena_bound) == (128, 12)
    assert program.description is description


def test_profile_gives_nodes_functions_and_times() -> None:
    (row,) = double().profile(X)
    assert row[:2] == (("node_f",), "f")
    assert row[2] > 0


def test_threads_are_as_asked_for() -> None:
    description = double().description
    functions = [loader({"f": lambda inputs: inputs})]
    assert Program.from_description(description, threads=3, loaders=functions).threads == 3
    assert Program.from_description(description, loaders=functions).threads >= 1


def test_program_prints_its_signature() -> None:
    assert repr(add()) == "<Program (left: float32[2,3], right: float32[2,3]) -> (y: float32[2,3])>"


# ---- DLPack ---------------------------------------------------------------------------------------------------------


class Foreign:
    """An array that only speaks DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_inputs_are_not_copied() -> None:
    addresses = []

    def function(inputs: list[np.ndarray]) -> list[np.ndarray]:
        addresses.append(inputs[0].ctypes.data)
        return [inputs[0]]

    program = elementwise(function, [("x", "float32", (2, 3))], ("float32", (2, 3)))
    np.testing.assert_array_equal(program(Foreign(X)), X)
    assert addresses == [X.ctypes.data]


def test_dlpack_inputs_that_are_not_contiguous_are_copied() -> None:
    np.testing.assert_array_equal(double()(Foreign(np.asfortranarray(X))), 2 * X)


def test_dlpack_mistakes() -> None:
    with pytest.raises(InputError) as caught:
        double()(Foreign(X[:, :2].copy()))
    assert str(caught.value) == (
        "input 'x' must be float32[2,3], got float32[2,2]; compile the model for this shape, or pass that one"
    )

    class Broken(Foreign):
        def __dlpack__(self, **options: object) -> object:
            raise BufferError("it requires grad")

    with pytest.raises(InputError) as caught:
        double()(Broken(X))
    assert str(caught.value) == "input 'x' cannot be read through DLPack: BufferError: it requires grad"
    assert isinstance(caught.value.__cause__, BufferError)


# ---- Mistakes of the caller -----------------------------------------------------------------------------------------


def check_input_error(function: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        function()  # type: ignore[operator]
    assert str(caught.value) == message


def test_wrong_inputs_are_told() -> None:
    program = add()
    check_input_error(lambda: program(X), "the program takes 2 inputs ('left', 'right'), got 1")
    check_input_error(lambda: program(X, X, X), "the program takes 2 inputs ('left', 'right'), got 3")
    check_input_error(
        lambda: program(X, X.astype(np.float64)),
        "input 'right' must be float32[2,3], got float64[2,3]; convert it to float32",
    )
    check_input_error(
        lambda: program(X, X.astype(ml_dtypes.bfloat16)),
        "input 'right' must be float32[2,3], got bfloat16[2,3]; convert it to float32",
    )
    check_input_error(
        lambda: program(X[0], X),
        "input 'left' must be float32[2,3], got float32[3]; compile the model for this shape, or pass that one",
    )
    check_input_error(
        lambda: program([[1.0]], X),
        "input 'left' must be a NumPy array or a DLPack tensor, got a Python list; convert it with numpy.asarray",
    )
    with pytest.raises(InputError, match=r"^input 'left': GraftError: unknown element type 'str"):
        program(np.array([["a"]]), X)


def test_wrong_names_are_told() -> None:
    program = add()
    check_input_error(
        lambda: program.run({"left": X, "rigth": X}),
        "no input 'rigth'; the program takes 'left', 'right'; did you mean 'right'?",
    )
    check_input_error(lambda: program.run({"left": X}), "missing input 'right'; the program takes 'left', 'right'")
    check_input_error(lambda: program.run({}), "missing inputs 'left', 'right'; the program takes 'left', 'right'")
    check_input_error(lambda: program(X, left=X), "input 'left' is given twice: by position and by name")
    check_input_error(lambda: program(X, X, X, left=X), "input 'left' is given twice: by position and by name")


def test_wrong_number_of_threads_is_told() -> None:
    description = double().description
    check_input_error(lambda: Program.from_description(description, threads=0), "threads must be at least 1, got 0")


# ---- Failures of functions ------------------------------------------------------------------------------------------


def failing(function: object, shape: tuple[int, ...] | None = (2, 3)) -> Program:
    return elementwise(function, [("x", "float32", (2, 3))], ("float32", shape))  # type: ignore[arg-type]


def check_run_error(program: Program, reason: str) -> RunError:
    for _ in range(2):
        with pytest.raises(RunError) as caught:
            program(X)
        assert str(caught.value) == f"node 'node_f': function 'f' of module 'm' (kind 'test'): {reason}"
    assert (caught.value.node, caught.value.function, caught.value.module) == ("node_f", "f", "m")
    return caught.value


def test_an_exception_is_chained() -> None:
    def function(inputs: list[np.ndarray]) -> list[np.ndarray]:
        raise ValueError("no luck")

    error = check_run_error(failing(function), "ValueError: no luck")
    assert isinstance(error.__cause__, ValueError)
    assert error.__cause__.__traceback__ is not None


def test_the_plugin_is_named() -> None:
    program = failing(lambda inputs: inputs[7])
    module = Module("m", "test", ("f",), b"", plugin="npu")
    description = ProgramDescription(program.description.procedures, (module,), {})
    named = Program.from_description(description, loaders=[loader({"f": lambda inputs: inputs[7]})])
    with pytest.raises(RunError) as caught:
        named(X)
    assert caught.value.plugin == "npu"
    assert "(kind 'test', plugin 'npu'): IndexError: list index out of range" in str(caught.value)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ([], "the function returned 0 outputs, not 1"),
        (None, "TypeError: a function must return a sequence of arrays"),
        ([X.astype(np.float64)], "output 0 must be float32[2,3], the function returned float64[2,3]"),
        ([X[:1]], "output 0 must be float32[2,3], the function returned float32[1,3]"),
    ],
)
def test_wrong_results_are_told(result: object, reason: str) -> None:
    check_run_error(failing(lambda inputs: result), reason)


def test_a_flat_result_is_the_elements_in_a_row() -> None:
    assert failing(lambda inputs: [inputs[0].reshape(-1)])(X).tolist() == X.tolist()
    check_run_error(
        failing(lambda inputs: [inputs[0].reshape(-1)[:5]]),
        "output 0 must be float32[2,3], the function returned float32[5]",
    )


def test_a_result_of_unknown_shape_has_its_type_checked() -> None:
    check_run_error(
        failing(lambda inputs: [np.zeros(5)], None), "output 0 must be float32, the function returned float64[5]"
    )
    assert failing(lambda inputs: [np.zeros((5, 0), np.float32)], None)(X).shape == (5, 0)


# ---- Loading --------------------------------------------------------------------------------------------------------


def check_artifact_error(description: ProgramDescription, message: str, loaders: list[PythonLoader]) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        Program.from_description(description, loaders=loaders)
    assert str(caught.value) == message
    return caught.value


def test_a_loader_gets_name_bytes_and_constants() -> None:
    seen = {}

    def load(name: str, data: bytes, constants: dict[str, np.ndarray]) -> dict[str, object]:
        seen.update(name=name, data=data, constants=constants)
        return {"f": lambda inputs: inputs}

    weights = np.arange(3, dtype=np.float32)
    procedures = double().description.procedures
    module = Module("m", "test", ("f",), b"\0data", {"w": weights})
    program = Program.from_description(
        ProgramDescription(procedures, (module,), {}), loaders=[PythonLoader("test", load)]
    )
    assert (seen["name"], seen["data"]) == ("m", b"\0data")
    constant = seen["constants"]["w"]
    np.testing.assert_array_equal(constant, weights)
    assert not constant.flags.writeable
    assert np.shares_memory(constant, weights)
    del program
    gc.collect()
    np.testing.assert_array_equal(constant, weights)


def test_failures_of_loaders() -> None:
    description = double().description

    def load(name: str, data: bytes, constants: dict[str, np.ndarray]) -> dict[str, object]:
        raise OSError("no device")

    error = check_artifact_error(
        description, "module 'm' (kind 'test') cannot be loaded: OSError: no device", [PythonLoader("test", load)]
    )
    assert isinstance(error.__cause__, OSError)
    check_artifact_error(description, "module 'm' (kind 'test') cannot be loaded: it has no function 'f'", [loader({})])
    check_artifact_error(
        description,
        "module 'm' (kind 'test') cannot be loaded: function 'f' is a int, which cannot be called",
        [loader({"f": 3})],  # type: ignore[dict-item]
    )


def test_a_description_that_is_not_valid_is_told() -> None:
    procedure = Procedure("main", (tensor("x", "float32", (2,), "arena", offset=32),), (), (), ())
    check_artifact_error(
        describe(procedure, []),
        "damaged manifest: procedure 0, tensor 0: 'offset' 32 is not a multiple of 64",
        [loader({})],
    )


def test_constants_are_aligned_and_copied_only_if_needed() -> None:
    buffer = np.zeros(64 + 16 + 12, np.uint8)
    start = -buffer.ctypes.data % 64
    for shift in (0, 4):
        weights = buffer[start + shift :][:12].view(np.float32)
        addresses = []

        def function(inputs: list[np.ndarray], addresses: list[int] = addresses) -> list[np.ndarray]:
            addresses.append(inputs[0].ctypes.data)
            return [inputs[0]]

        procedure = Procedure(
            "main",
            (
                tensor("w", "float32", (3,), "constant", constant="w"),
                tensor("y", "float32", (3,), "output", index=0),
            ),
            (),
            (1,),
            (call("f", [0], [1]),),
        )
        program = Program.from_description(
            describe(procedure, ["f"], {"w": weights}), loaders=[loader({"f": function})]
        )
        np.testing.assert_array_equal(program(), weights)
        assert addresses[0] % 64 == 0
        assert (addresses[0] == weights.ctypes.data) == (shift == 0)


# ---- Life and threads -----------------------------------------------------------------------------------------------


def test_arrays_that_a_function_keeps_stay_readable() -> None:
    kept: list[np.ndarray] = []

    def keep(inputs: list[np.ndarray]) -> list[np.ndarray]:
        kept.append(inputs[0])
        return [inputs[0] + 1]

    procedure = Procedure(
        "main",
        (
            tensor("x", "float32", (4096,), "input", index=0),
            tensor("t", "float32", (4096,), "arena", offset=0),
            tensor("d", "float32", None, "dynamic"),
            tensor("y", "float32", (4096,), "output", index=0),
        ),
        (0,),
        (3,),
        (call("f", [0], [1]), call("f", [1], [2]), call("f", [2], [3])),
        arena_bytes=16384,
    )
    program = Program.from_description(describe(procedure, ["f"]), loaders=[loader({"f": keep})])
    np.testing.assert_array_equal(program(np.zeros(4096, np.float32)), np.full(4096, 3, np.float32))
    del program
    gc.collect()
    assert [float(array.sum()) for array in kept] == [0, 4096, 8192]


def test_threads_call_one_program_at_once() -> None:
    program = double()
    wrong = []

    def work(seed: int) -> None:
        for i in range(50):
            x = np.full((2, 3), seed * 100 + i, np.float32)
            if not np.array_equal(program(x), 2 * x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_function_may_run_another_program() -> None:
    inner = double()
    outer = elementwise(lambda inputs: [inner(inputs[0])], [("x", "float32", (2, 3))], ("float32", (2, 3)))
    np.testing.assert_array_equal(outer(X), 2 * X)


def test_the_runtime_imports_no_compiler() -> None:
    code = (
        "import json, sys\nimport graft.runtime.program\n"
        "heavy = ('onnx', 'onnx_ir', 'llvmlite', 'pluggy', 'click')\n"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == []


def test_a_scalar_of_numpy_is_an_array_of_rank_0() -> None:
    program = double(())
    assert program(np.float32(1.5)) == program(np.array(1.5, np.float32)) == 3
    assert double((), "int64")(np.int64(-4)) == -8
    check_input_error(
        lambda: program(np.float64(1)), "input 'x' must be float32[], got float64[]; convert it to float32"
    )
    check_input_error(
        lambda: double()(np.float32(1)),
        "input 'x' must be float32[2,3], got float32[]; compile the model for this shape, or pass that one",
    )


# ---- Where results go, when runs end, values that are no tensors ----------------------------------------------------


def test_a_call_that_may_end_early_or_says_where_its_results_go_gives_the_same() -> None:
    program, token = double(), CancelToken()
    for options in ({"outputs_on": "cpu"}, {"deadline": 60}, {"cancel": token}):
        np.testing.assert_array_equal(program(X, **options), 2 * X)  # type: ignore[arg-type]
        np.testing.assert_array_equal(program.run({"x": X}, **options)["y"], 2 * X)  # type: ignore[arg-type]
    token.cancel()
    for late, error in (({"cancel": token}, CancelledError), ({"deadline": 1e-9}, DeadlineError)):
        for run in (lambda late=late: program(X, **late), lambda late=late: program.run({"x": X}, **late)):
            with pytest.raises(error):
                run()


def test_a_place_that_the_program_does_not_compute_on_is_told() -> None:
    for place, shown in (("npu", "'npu'"), (3, "3")):
        with pytest.raises(InputError) as caught:
            double()(X, outputs_on=place)  # type: ignore[arg-type]
        assert str(caught.value) == f"outputs_on is {shown}; the program computes on 'cpu'"
        with pytest.raises(InputError, match=r"^outputs_on is"):
            double().run({"x": X}, outputs_on=place)  # type: ignore[arg-type]


def test_a_project_is_recorded_with_seeded_inputs_and_has_one_thread_unless_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, object]] = []
    monkeypatch.setattr(c_check.Recorded, "of", lambda program, inputs: inputs)
    monkeypatch.setattr(
        c_project, "export_c_project", lambda *given, **options: seen.append({"given": given, **options})
    )
    program = double()
    program.export_c_project("folder")
    description, path, inputs = seen[0].pop("given")  # type: ignore[misc]
    assert (description, path) == (program.description, "folder")
    np.testing.assert_array_equal(inputs["x"], inputs_of(program, (), 0)["x"])
    free = {"flash": None, "stack": None, "compiler": ""}
    assert seen[0] == {"name": None, "profile": "hosted", "ram": None, "threads": 1, **free}
    program.export_c_project("folder", {"x": X}, name="net", profile="bare-metal", ram=0, threads=1)
    assert seen[1].pop("given")[2]["x"] is X  # type: ignore[index]
    assert seen[1] == {"name": "net", "profile": "bare-metal", "ram": 0, "threads": 1, **free}
    for wrong in ({"threads": 0}, {"ram": -1}, {"profile": "other"}):
        with pytest.raises(GraftError):
            program.export_c_project("folder", **wrong)  # type: ignore[arg-type]


def test_a_run_names_its_results() -> None:
    found = two_outputs().run({"x": np.array([0, 3], np.float32)})
    assert [*found] == ["copied", "found"] and found["found"].tolist() == [1]
    assert [*double().run({"x": X})] == ["y"]


def packed(results: int, inputs: tuple[str, ...] = ("words",)) -> Program:
    """A program of text and a number: it returns its first inputs."""
    words = TensorSpec("words", "uint8", (Symbol("n"),), "input", index=0)
    tensors = [words, tensor("x", "float32", (2, 3), "input", index=1)]
    outputs = [tensor("said", "uint8", None, "output", index=0), tensor("y", "float32", (2, 3), "output", index=1)]
    numbers = tuple(range(2, 2 + results))
    procedure = Procedure(
        "main", (*tensors, *outputs[:results]), (0, 1), numbers, (call("f", [0, 1], numbers),),
        symbols=(SymbolSpec("n", 0, None, 0, 0),),
    )  # fmt: skip
    rows = {"inputs": dict.fromkeys(inputs, "string"), "outputs": {"said": "string"}}
    description = replace(describe(procedure, ["f"]), metadata={METADATA: rows})
    return Program.from_description(description, loaders=[loader({"f": lambda given: list(given[:results])})])


@pytest.mark.parametrize("results", [1, 2])
def test_text_goes_in_and_comes_out(results: int) -> None:
    program, words = packed(results), np.array(["a", "bc"], object)
    for found in (program(words, X), program(words, X, outputs_on="cpu"), program(words, X, deadline=60)):
        first = found if results == 1 else found[0]
        assert first.tolist() == ["a", "bc"]
        if results == 2:
            np.testing.assert_array_equal(found[1], X)
    assert program.run({"words": words, "x": X})["said"].tolist() == ["a", "bc"]
    with pytest.raises(InputError, match="2"):
        program(words, X, X)
