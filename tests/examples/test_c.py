"""The C examples: built with make and a C compiler, under sanitizers, they load and run artifacts without Python."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import graft
from graft.core.graph.view import NodeView
from graft.core.machine.target import CompileOptions
from graft.plugins.accelerator.backend import AcceleratorBackend
from graft.runtime.loaders import ModuleFunction, PythonLoader

ROOT = Path(__file__).parents[2]
SANITIZED = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 6] x, float[6, 4] w) => (float[2, 4] y, int64[2] best) {
  h = MatMul(x, w)
  y = Softmax(h)
  best = ArgMax <axis = 1, keepdims = 0> (y)
}"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first example, built outside the repository; the second stands beside it."""
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    build = tmp_path_factory.mktemp("build")
    done = subprocess.run(
        ["make", "-C", ROOT / "examples" / "c", f"BUILD={build}", f"CFLAGS={SANITIZED}"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return build / "run"


def run(example: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([example, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_a_c_program_gives_what_python_gives(example: Path, tmp_path: Path) -> None:
    program = graft.compile(onnx.parser.parse_model(MODEL), ["llvm"], threads=1)
    program.save(tmp_path / "m.graft")
    x, w = (np.arange(np.prod(one.shape or ()), dtype=np.float32).reshape(one.shape) / 100 for one in program.inputs)
    y, best = program(x, w)
    done = run(example, tmp_path / "m.graft", 3)
    assert done.returncode == 0, done.stderr
    first, second, time = done.stdout.splitlines()
    name, *numbers = first.split()
    assert name == "y:"
    assert numbers[0] == "[2,4]"
    np.testing.assert_allclose([float(number) for number in numbers[1:]], y.reshape(-1), rtol=1e-4)
    assert second == f"best: [2] {best[0]} {best[1]}"
    assert time.endswith(" ms")


def test_the_program_of_the_documentation_runs(example: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    source = text.partition("The least program:")[2].partition("```c\n")[2].partition("```")[0]
    (tmp_path / "main.c").write_text(source, encoding="utf-8")
    include, library = ROOT / "runtime" / "native" / "include", example.parent / "libgraft_runtime.a"
    command = [
        "cc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        *SANITIZED.split(),
        f"-I{include}",
        tmp_path / "main.c",
        library,
    ]
    subprocess.run([*command, "-o", tmp_path / "main", "-pthread", "-ldl", "-lm"], check=True, timeout=60)
    program = graft.compile(str(ROOT / "examples" / "digits" / "digits.onnx"), ["llvm"], threads=1)
    program.save(tmp_path / "digits.graft")
    expected = program(np.zeros((1, 1, 8, 8), np.float32)).reshape(-1)[0]
    done = run(tmp_path / "main", tmp_path / "digits.graft")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(float(done.stdout), expected, rtol=1e-4)


def test_a_server_shares_threads_and_gets_back_its_memory(example: Path, tmp_path: Path) -> None:
    program = graft.compile(onnx.parser.parse_model(MODEL), ["llvm"], threads=1)
    program.save(tmp_path / "m.graft")
    calls = sum(1 for call in program.description.procedures[0].calls)
    path = str(tmp_path / "m.graft")
    done = run(example.parent / "serve", path, path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    times = [line for line in lines if line.startswith(path)]
    assert len(times) == 2 * calls
    assert all(line.split()[1] == "native" and line.endswith(" ns") for line in times)
    assert sum(line.startswith("y: [2,4]") for line in lines) == 2
    assert lines[-1] == "0 blocks left"


def test_a_c_program_tells_what_is_wrong(example: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none.graft"
    done = run(example, missing)
    assert (done.returncode, done.stderr) == (1, f"cannot open artifact '{missing}': No such file or directory\n")
    (tmp_path / "bad.graft").write_bytes(b"PK" * 100)
    done = run(example, tmp_path / "bad.graft")
    assert done.returncode == 1
    assert done.stderr.startswith("artifact is damaged: it does not end as an artifact does")
    assert run(example).returncode == 2


SHIFT = np.array([0.5, -1.0, 2.0, 0.25], np.float32)


class Affine(graft.Backend):
    """Takes Relu, as a vendor whose unit computes 2x + shift: enough to show which of the two ran."""

    name = "affine"
    install = "pip install graft-affine"
    data = struct.pack("<f", 2.0)

    def supports(self, node: NodeView) -> bool | graft.Reject:
        return node.op_type == "Relu" or graft.Reject("no-pattern", "only Relu")

    def compile(self, region: graft.Region, options: CompileOptions) -> graft.Module:
        return graft.Module(region.name, "example:affine", (region.name,), self.data, {"shift": SHIFT})

    def module_loaders(self) -> list[PythonLoader]:
        return [PythonLoader("example:affine", load_affine)]


def load_affine(name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> Mapping[str, ModuleFunction]:
    (scale,) = struct.unpack("<f", data)
    return {name: lambda inputs: [scale * np.asarray(inputs[0]) + constants["shift"]]}


def affine_artifact(path: Path) -> graft.Program:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[3,4] x) => (float[3,4] y) { r = Relu(x) y = Neg(r) }'
    program = graft.compile(onnx.parser.parse_model(text), [Affine(), "llvm"], threads=1)
    program.save(path)
    return program


def test_a_c_program_with_a_vendors_loader_gives_what_python_gives(example: Path, tmp_path: Path) -> None:
    program = affine_artifact(tmp_path / "m.graft")
    x = np.arange(12, dtype=np.float32).reshape(3, 4) / 100
    np.testing.assert_allclose(program(x), -(2 * x + SHIFT), rtol=1e-6)
    done = run(example.with_name("vendor"), tmp_path / "m.graft", 2)
    assert done.returncode == 0, done.stderr
    name, shape, *numbers = done.stdout.splitlines()[0].split()
    assert (name, shape) == ("y:", "[3,4]")
    np.testing.assert_allclose([float(number) for number in numbers], program(x).reshape(-1)[:8], rtol=1e-4)


def test_a_c_program_without_the_vendors_loader_says_what_to_install(example: Path, tmp_path: Path) -> None:
    affine_artifact(tmp_path / "m.graft")
    done = run(example, tmp_path / "m.graft")
    assert (done.returncode, done.stderr) == (
        1,
        "no loader for modules of kind 'example:affine', which module 'affine_0' needs; plugin 'affine' provides it; "
        "install it with: pip install graft-affine\n",
    )


def test_what_a_vendors_loader_refuses_is_said_with_its_module(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Affine, "data", b"seven..")
    loaders = [PythonLoader("example:affine", lambda *_: {"affine_0": list})]
    monkeypatch.setattr(Affine, "module_loaders", staticmethod(lambda: loaders))
    affine_artifact(tmp_path / "m.graft")
    done = run(example.with_name("vendor"), tmp_path / "m.graft")
    assert (done.returncode, done.stderr) == (
        1,
        "module 'affine_0' (kind 'example:affine', plugin 'affine') cannot be loaded: its scale has 7 bytes, "
        "expected 4\n",
    )


def quantized_product() -> onnx.ModelProto:
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
g (int8[1, 3] x) => (int8[1, 2] y) <float s = {0.5}, int8 z = {0}, int8[3, 2] w = {1, 2, 3, 4, 5, 6}> {
  a = DequantizeLinear(x, s, z)
  b = DequantizeLinear(w, s, z)
  c = MatMul(a, b)
  y = QuantizeLinear(c, s, z)
}""")


def test_a_device_behind_a_table_of_functions_runs_programs(example: Path, tmp_path: Path) -> None:
    graft.compile(quantized_product(), ["accelerator"], strict=True).save(tmp_path / "m.graft")
    done = run(example.parent / "accelerator", tmp_path / "m.graft", 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("y: [1,2]")
    assert done.stdout.splitlines()[-1] == "the device ran 3 times"


def test_a_program_for_another_configuration_is_refused(example: Path, tmp_path: Path) -> None:
    other = AcceleratorBackend(input_bytes=16384)
    graft.compile(quantized_product(), [other], strict=True).save(tmp_path / "m.graft")
    done = run(example.parent / "accelerator", tmp_path / "m.graft")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "'accelerator_0': the program is for another configuration: 'input_bytes' is 16384, and device 'example' has "
        "32768\n"
    )
