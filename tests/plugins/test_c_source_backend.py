"""CSourceBackend: what a backend says of its calls becomes C, runs in the program, and is refused with the place."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

import graft
from graft.errors import ArtifactError, CompileError, GraftError, PluginError
from graft.patterns import is_constant, is_op, wildcard
from graft.runtime.c_source import INCLUDE, PRELUDE
from graft.runtime.procedure import Module
from tests.plugins.c_library import SONAME, build, model

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tiny"))


class Tiny(graft.CSourceBackend):
    name = "tiny"
    headers = ("tiny.h",)
    install = "apt-get install libtiny-dev"

    @graft.supports(
        is_op("Relu")(is_op("MatMul")(wildcard().named("left"), is_constant().named("right"))), name="tiny.matmul_relu"
    )
    def matmul_relu(self, match: object) -> bool:
        return "tiny.matmul_relu" in self.calls

    @graft.supports("Relu", "LeakyRelu", "MatMul")
    def single(self, node: Any) -> bool:
        return node.op_type in self.calls or "Relo" in self.calls


Make = Callable[..., graft.CSourceBackend]


@pytest.fixture
def tiny(library: Path) -> Make:
    """Makes backends of the library with some calls, and other fields of the class."""

    def make(calls: dict[str, Any], **fields: Any) -> graft.CSourceBackend:
        own = {"includes": (library.parent,), "libraries": (str(library),), "calls": calls, **fields}
        made: graft.CSourceBackend = type("Own", (Tiny,), own)()
        return made

    return make


RELU = "tiny_relu({X}, {Y.size}, {Y})"
SCALE = graft.CCall("tiny_scale({X}, {alpha}, {X.shape:int}, {X.rank}, {scratch}, {Y})", scratch=X.nbytes, success="0")


COUNT = graft.CCall("tiny_count({kept}, {X}, {Y.size}, {Y})", destroy="tiny_forget", success="0")


def compiled(backend: graft.CSourceBackend, body: str, **shapes: str) -> graft.Program:
    program: graft.Program = graft.compile(model(body, **shapes), [backend], strict=True, cache=False)
    return program


def module_of(program: graft.Program) -> Module:
    (module,) = program.description.modules
    return module


def text_of(program: graft.Program) -> str:
    source = module_of(program).source
    assert source is not None
    return source.text


def test_operators_and_composites_are_calls(tiny: Make) -> None:
    product = "tiny_matmul({left}, {right}, {Y}, {left.shape[0]}, {Y.shape[1]}, {inputs[0].shape[1]})"
    backend = tiny({"Relu": RELU, "tiny.matmul_relu": product}, success="")
    program = compiled(
        backend, "a = Relu(x) b = MatMul(a, w) y = Relu(b)", weights="float[3,3] w = {1,2,3,4,5,6,7,8,9}"
    )
    assert program(X).tolist() == [[22, 26, 30], [20, 25, 30]]
    assert (module_of(program).kind, module_of(program).plugin) == ("c_source", "tiny")


def test_the_c_of_a_kernel(tiny: Make) -> None:
    assert text_of(compiled(tiny({"LeakyRelu": SCALE}), "y = LeakyRelu<alpha=0.1>(x)")) == (
        "/* 'y' */\n"
        "GRAFT_KERNEL int32_t tiny_0_0(GraftContext *context, const float *restrict x, float *restrict y) {\n"
        "  void *const scratch = graft_scratch(context, 24);\n"
        "  if (!scratch) return GRAFT_ERROR_MEMORY;\n"
        "  const long long status = (long long)(tiny_scale(x, 0.1f, (const int[]){2, 3}, 2, scratch, y));\n"
        '  if (status != (long long)(0)) return graft_fail(context, "tiny_scale returned %lld", (long long)status);\n'
        "  return GRAFT_OK;\n"
        "}\n"
    )


def test_scratch_and_attributes_reach_the_call(tiny: Make) -> None:
    program = compiled(tiny({"LeakyRelu": SCALE}), "y = LeakyRelu<alpha=0.5>(x)")
    assert program(X).tolist() == (X / 2).tolist()


def test_an_optional_input_that_is_left_out_is_null() -> None:
    class Clipping(graft.CSourceBackend):
        name = "clipping"
        helpers = """static inline void clip(const float *x, const float *low, int64_t count, float *y) {
          for (int64_t i = 0; i < count; i++) y[i] = low != NULL && x[i] < *low ? *low : x[i];
        }"""
        calls: ClassVar[dict[str, str]] = {"Clip": "clip({input}, {min}, {Y.size}, {Y})"}

        @graft.supports("Clip")
        def clip(self, node: Any) -> bool:
            return True

    np.testing.assert_array_equal(compiled(Clipping(), "y = Clip(x)")(X), X)


def test_floats_of_8_bits_are_handed_over_as_their_bits() -> None:
    class Copying(graft.CSourceBackend):
        name = "copying"
        headers = ("string.h",)
        calls: ClassVar[dict[str, str]] = {"Transpose": "memcpy({Y}, {data}, {Y.size})"}

        @graft.supports("Transpose")
        def copy(self, node: Any) -> bool:
            return True

    program = compiled(Copying(), "y = Transpose(x)", x="float8e5m2[3] x", y="float8e5m2[3] y")
    assert "const uint8_t *restrict data, uint8_t *restrict y" in text_of(program)
    x = np.array([1, -2, 0.5], ml_dtypes.float8_e5m2)
    assert program(x).tolist() == x.tolist()


def test_a_call_keeps_what_it_made(tiny: Make) -> None:
    program = compiled(tiny({"Relu": COUNT}), "a = Relu(x) y = Relu(a)")
    assert module_of(program).functions == ("tiny_0_0",)
    assert [program(X).tolist() for _ in range(2)] == [(X + 2).tolist(), (X + 4).tolist()], "each call has its own"


def test_the_c_of_a_kernel_that_keeps_something(tiny: Make) -> None:
    assert text_of(compiled(tiny({"Relu": COUNT}), "y = Relu(x)")) == (
        "/* 'y' */\n"
        "GRAFT_KERNEL int32_t tiny_0_0(GraftContext *context, GraftKept *kept, const float *restrict x, "
        "float *restrict y) {\n"
        "  void *object = graft_take(kept);\n"
        "  const long long status = (long long)(tiny_count(&object, x, 6, y));\n"
        "  if (status != (long long)(0) && object) tiny_forget(object);\n"
        '  if (status != (long long)(0)) return graft_fail(context, "tiny_count returned %lld", (long long)status);\n'
        "  graft_keep(kept, object, tiny_forget);\n"
        "  return GRAFT_OK;\n"
        "}\n"
    )


def test_what_is_kept_goes_with_the_program_and_with_a_call_that_failed(tiny: Make, library: Path) -> None:
    forgotten = ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "tiny_forgotten")
    before = forgotten.value
    program = compiled(tiny({"Relu": COUNT}), "y = Relu(x)")
    assert program(X).tolist() == (X + 1).tolist()
    with pytest.raises(GraftError, match="tiny_count returned 1"):
        program(X + 2000)
    assert forgotten.value == before + 1
    assert program(X).tolist() == (X + 1).tolist()
    del program
    gc.collect()
    assert forgotten.value == before + 2


def test_threads_at_a_time_keep_an_object_each(tiny: Make) -> None:
    program = compiled(tiny({"Relu": COUNT}), "y = Relu(x)")
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(program, [X] * 400))
    runs = [int(one[0, 0] - X[0, 0]) for one in found]
    assert min(runs) == 1
    assert all(np.array_equal(one, X + run) for one, run in zip(found, runs, strict=True))


def test_equal_kernels_share_a_function(tiny: Make) -> None:
    program = compiled(tiny({"Relu": RELU}), "a = Relu(x) b = Relu(a) y = Relu(b)")
    assert module_of(program).functions == ("tiny_0_0",)
    assert [call.function for call in program.description.procedures[0].calls] == ["tiny_0_0"] * 3
    assert text_of(program).startswith("/* 'a', 'b', 'y' */\n")


def test_buffers_between_calls_are_planned(tiny: Make) -> None:
    program = compiled(tiny({"Relu": RELU}), "a = Relu(x) b = Relu(a) c = Relu(b) y = Relu(c)")
    assert program.description.procedures[0].arena_bytes == 128  # two of three live at a time, of 64 bytes each


def test_constants_are_packed_when_they_are_compiled(tiny: Make) -> None:
    def product(kernel: graft.CKernel) -> graft.CCall:
        doubled = 2 * kernel["B"].constant
        return graft.CCall("tiny_matmul({A}, {B}, {Y}, 2, 3, 3)", packed={"B": doubled})

    program = compiled(tiny({"MatMul": product}), "y = MatMul(x, w)", weights="float[3,3] w = {1,0,0,0,1,0,0,0,1}")
    assert program(X).tolist() == (2 * X).tolist()


def test_extents_that_vary_are_read_from_shapes(tiny: Make) -> None:
    backend = tiny({"Relu": "tiny_relu({X}, {Y.shape[0]} * {X.strides[0]}, {Y})"}, shapes="symbolic")
    program = compiled(backend, "y = Relu(x)", x="float[n,m,3] x", y="float[n,m,3] y")
    assert "tiny_relu(x, x_shape[0] * (3 * x_shape[1]), y);" in text_of(program)
    for rows in (1, 4, 0):
        x = np.linspace(-1, 1, rows * 6, dtype=np.float32).reshape(rows, 2, 3)
        assert program(x).tolist() == np.maximum(x, 0).tolist()


def test_an_empty_result_is_not_asked_for(tiny: Make) -> None:
    program = compiled(tiny({"Relu": RELU}), "y = Relu(x)", x="float[0,3] x", y="float[0,3] y")
    assert "if (0 == 0) return GRAFT_OK;" in text_of(program)
    assert program(np.empty((0, 3), np.float32)).shape == (0, 3)


def test_several_threads_call_at_a_time(tiny: Make) -> None:
    program = compiled(tiny({"LeakyRelu": SCALE}), "y = LeakyRelu<alpha=0.5>(x)")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda number: program(X + number), range(64)))
    assert all(np.array_equal(one, (X + number) / 2) for number, one in enumerate(results))


@pytest.mark.parametrize("options", [[], ["-DGRAFT_PROJECT"]])
def test_the_text_is_c_for_both_hosts(tiny: Make, library: Path, options: list[str]) -> None:
    text = text_of(compiled(tiny({"LeakyRelu": SCALE}), "y = LeakyRelu<alpha=0.1>(x)"))
    head = f"#define GRAFT_KERNEL\n#include <{PRELUDE}>\n#include <tiny.h>\n"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{INCLUDE}", f"-I{library.parent}"]
    said = subprocess.run(["cc", *flags, *options, "-x", "c", "-"], input=head + text, capture_output=True, text=True)
    assert said.stderr == ""


def test_a_program_is_told_what_to_link_with(tiny: Make) -> None:
    source = module_of(compiled(tiny({"Relu": RELU}, link=("-ltiny", "-lm")), "y = Relu(x)")).source
    assert source is not None
    assert (source.libraries, source.headers) == (("-ltiny", "-lm"), ("tiny.h",))


# ---- Saved programs ----

LOADED = "import sys, numpy, graft.runtime; print(graft.runtime.load(sys.argv[1])(numpy.array([[-1, 2, -3]] * 2, 'f')))"


def test_a_saved_program_finds_the_library_by_its_soname(
    tiny: Make, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = tiny({"Relu": RELU})
    monkeypatch.setattr(type(backend), "libraries", (SONAME,))
    compiled(backend, "y = Relu(x)").save(tmp_path / "m.graft")
    search = os.environ | {"LD_LIBRARY_PATH": str(library.parent)}
    command = [sys.executable, "-c", LOADED, str(tmp_path / "m.graft")]
    assert subprocess.run(command, env=search, capture_output=True, text=True).stdout == "[[0. 2. 0.]\n [0. 2. 0.]]\n"
    said = subprocess.run(command, capture_output=True, text=True).stderr
    assert said.strip().endswith(
        f"module 'tiny_0' (kind 'c_source', plugin 'tiny') cannot be loaded: it needs the library '{SONAME}', which "
        f"cannot be opened: {SONAME}: cannot open shared object file: No such file or directory; install it with: "
        "apt-get install libtiny-dev"
    )


def test_a_library_by_its_path_ties_the_program_to_this_machine(tiny: Make, library: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        compiled(tiny({"Relu": RELU}), "y = Relu(x)").save(tmp_path / "m.graft")
    assert f"it calls functions of '{library}', a file of this machine; name it by its soname" in caught.value.message


# ---- Faults ----


def fault(backend: graft.CSourceBackend, kind: type[GraftError], body: str = "y = Relu(x)") -> str:
    with pytest.raises(kind) as caught:
        compiled(backend, body)
    return caught.value.message


REGION = "backend 'tiny': region 'tiny_0'"


def test_a_function_that_no_header_declares_is_named_with_its_line(tiny: Make) -> None:
    assert fault(tiny({"Relu": "tiny_rellu({X}, {Y})"}), CompileError).startswith(
        f"{REGION}, Relu (node 'y'): the C compiler refuses 'tiny_rellu(x, y);': implicit declaration of function "
        "'tiny_rellu'"
    )


def test_too_few_arguments_are_named_with_their_line(tiny: Make) -> None:
    assert fault(tiny({"Relu": "tiny_relu({X}, {Y.size})"}), CompileError) == (
        f"{REGION}, Relu (node 'y'): the C compiler refuses 'tiny_relu(x, 6);': too few arguments to function "
        "'tiny_relu'"
    )


def test_a_function_that_no_library_has_is_named(tiny: Make, library: Path) -> None:
    assert fault(tiny({"Relu": "tiny_nowhere({X}, {Y})"}), CompileError) == (
        f"{REGION}: Relu (node 'y') calls 'tiny_nowhere', which none of the backend's libraries has ('{library}'); is "
        "the header of another version?"
    )


def test_helpers_that_are_no_c_are_named(tiny: Make) -> None:
    said = fault(tiny({"Relu": RELU}, helpers="static inline void help(void) { missing(); }"), CompileError)
    assert said.startswith(
        f"{REGION}, its helpers: the C compiler refuses 'static inline void help(void) {{ missing();"
    )


UNWRITABLE = {
    "tiny_relu({Z}, {Y})": "has '{Z}'; there are inputs, Relu, Y, X",
    "tiny_relu({x}, {Y})": "has '{x}'; there are inputs, Relu, Y, X",
    "tiny_relu({X.shpae[0]}, {Y})": "cannot be written: an operand has no 'shpae'; did you mean 'shape'?",
    "tiny_relu({X.shape[2]}, {Y})": "cannot be written: tuple index out of range",
    "tiny_relu({0}, {Y})": "has '{0}'; write {inputs[0]} for the input at a position",
    "tiny_scale({X}, (float[]){1, {alpah}}[1], {Y})": (
        "has '{alpah}'; did you mean 'alpha'? write '{ alpah }' for C's own braces"
    ),
}


@pytest.mark.parametrize("call", UNWRITABLE)
def test_an_unknown_field_is_named(tiny: Make, call: str) -> None:
    said = fault(tiny({"Relu": graft.CCall(call, {"alpha": 1.0} if "alpah" in call else {})}), PluginError)
    assert said == f"{REGION}: Relu (node 'y'): the call '{call}' {UNWRITABLE[call]}"


BRACES = {
    "tiny_scale({X}, (const float[]){1, {alpha}}[1], {X.shape:int}, {X.rank}, {scratch}, {Y})": 0.25,
    "tiny_scale({X}, (const float[2]){0}[1], {X.shape:int}, {X.rank}, {scratch}, {Y})": 0,
    "tiny_scale({X}, (const float[2][1]){{0}, {2}}[1][0], {X.shape:int}, {X.rank}, {scratch}, {Y})": 2,
    "tiny_scale({X}, (struct Own){.by = {alpha}}.by, (int[]){ {X.shape[0]}, {X.shape[1]} }, 2, {scratch}, {Y})": 0.25,
    "tiny_scale({X}, sizeof \"{X}{\" + sizeof(char[]){'{', '}'} , {X.shape:int}, {X.rank}, {scratch}, {Y})": 7,
    "tiny_scale({X}, (float[]){ALPHABET}[0], {X.shape:int}, {X.rank}, {scratch}, {Y})": 26,
}


@pytest.mark.parametrize("call", BRACES)
def test_braces_of_c_stay_as_they_are_written(tiny: Make, call: str) -> None:
    helpers = "#define ALPHABET 26\nstruct Own { float by; };\n"
    backend = tiny({"LeakyRelu": graft.CCall(call, scratch=X.nbytes, success="0")}, helpers=helpers)
    program = compiled(backend, "y = LeakyRelu <alpha = 0.25> (x)")
    np.testing.assert_array_equal(program(X), np.float32(BRACES[call]) * X)


def test_a_position_beyond_the_inputs_is_named(tiny: Make) -> None:
    said = fault(tiny({"Relu": "tiny_relu({inputs[1]}, {Y})"}), PluginError)
    assert said == f"{REGION}: Relu (node 'y') has 1 inputs; the call names the one at 1"


def test_a_value_that_is_no_constant_is_named(tiny: Make) -> None:
    said = fault(tiny({"Relu": "tiny_relu({X.value}, {Y})"}), PluginError)
    assert said == f"{REGION}: 'X' is no constant; 'value' is that of a constant with one element"


def test_what_is_supported_without_a_call_is_named(tiny: Make) -> None:
    said = fault(tiny({"Relo": RELU}), PluginError)
    assert said == f"{REGION}: Relu (node 'y') is supported, but calls have no 'Relu'; did you mean 'Relo'?"


def test_a_call_that_fails_ends_the_run_with_its_node(tiny: Make) -> None:
    program = compiled(tiny({"LeakyRelu": SCALE}), "y = LeakyRelu(x)", x="float[1001,1] x", y="float[1001,1] y")
    with pytest.raises(GraftError) as caught:
        program(np.zeros((1001, 1), np.float32))
    assert caught.value.message == (
        "node 'y': function 'tiny_0_0' of module 'tiny_0' (kind 'c_source', plugin 'tiny'): tiny_scale returned 7"
    )


def test_another_machine_is_refused(tiny: Make) -> None:
    with pytest.raises(CompileError) as caught:
        graft.compile(model("y = Relu(x)"), [tiny({"Relu": RELU})], strict=True, target="armv8-a")
    assert "compiles calls of libraries for this machine" in caught.value.message


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"headers": ("tinny.h",)}, "the header 'tinny.h' is not found"),
        ({"libraries": ("libtinny.so.3",)}, "the library 'libtinny.so.3' cannot be opened: libtinny.so.3: cannot open "
            "shared object file: No such file or directory"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_with_what_to_install(tiny: Make, fields: dict[str, Any], reason: str) -> None:
    assert tiny({"Relu": RELU}).available() is None
    assert tiny({"Relu": RELU}, **fields).available() == f"{reason}; apt-get install libtiny-dev"
