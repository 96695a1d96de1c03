"""What `load` does with the machine code of an artifact."""

from __future__ import annotations

import platform
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import graft
from graft.errors import ArgumentError, ArtifactError, InputError
from graft.runtime.artifact import read, save
from graft.runtime.loaders import PythonLoader
from graft.runtime.loading import load
from tests.runtime.artifacts import KIND, LOADER, members_of, resealed, write

WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)


def model() -> onnx.ModelProto:
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 20]>
        network (float[n,64] x) => (float[n,64] y) <float[64,64] w> {
            a = MatMul(x, w)
            y = Relu(a)
        }""")
    proto.graph.initializer.append(numpy_helper.from_array(WEIGHT, "w"))
    return proto


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "kept.graft"
    graft.compile(model(), ["llvm"], threads=1, keep_weights=True).save(path)
    return path


def never(name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> Mapping[str, object]:
    raise AssertionError("the module is loaded")


def test_machine_code_is_refused_before_any_of_it_is_loaded(tmp_path: Path, kept: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        load(kept, native="refuse")
    assert caught.value.message == (
        f"'{kept}' holds machine code, which native='refuse' does not run: module 'llvm_0' (kind 'native'); "
        "native='recompile' compiles its model anew, native='signed' wants a signature"
    )
    assert "--native refuse" in caught.value.command_line
    write(tmp_path / "p.graft")
    with pytest.raises(ArtifactError, match=r"module 'm' \(kind 'test'\)"):
        load(tmp_path / "p.graft", native="refuse", loaders=[PythonLoader(KIND, never)])  # type: ignore[arg-type]


def test_module_of_a_loader_that_reads_data_is_not_refused(tmp_path: Path) -> None:
    write(tmp_path / "p.graft")
    loader = PythonLoader(KIND, LOADER.load, holds_code=False)
    program = load(tmp_path / "p.graft", native="refuse", loaders=[loader])
    np.testing.assert_array_equal(program(np.ones(4, np.float32), np.array(False)), np.ones(4))


def test_an_artifact_does_not_say_of_itself_that_it_is_data(tmp_path: Path, kept: Path) -> None:
    """A native module that calls itself a vendor's is loaded by that vendor, or by nobody."""
    path = tmp_path / "forged.graft"
    members = members_of(kept.read_bytes())
    members["manifest.json"] = members["manifest.json"].replace(b'"kind":"native"', b'"kind":"json:onednn"')
    path.write_bytes(resealed(members))
    with pytest.raises(ArtifactError):
        load(path, native="refuse", strict=True)


def forged(kept: Path, folder: Path) -> Path:
    """Write the artifact with other machine code, which ends the process with status 42, and with right hashes."""
    members = members_of(kept.read_bytes())
    name = next(one for one in members if one.startswith("modules/"))
    code = bytearray(members[name])
    start, _, size = struct.unpack_from("<3Q", code, 16)
    leave = bytes.fromhex("bf2a000000b8e70000000f05")  # mov edi, 42; mov eax, SYS_exit_group; syscall
    code[start : start + size] = (b"\x90" * (size - len(leave))) + leave  # wherever it is entered
    path = folder / "forged.graft"
    path.write_bytes(resealed({**members, name: bytes(code)}))
    return path


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the forged code is that of x86-64")
def test_forged_machine_code_is_run_by_default_and_by_no_other_policy(kept: Path, tmp_path: Path) -> None:
    path = forged(kept, tmp_path)
    code = (
        "import sys, numpy as np, graft.runtime\n"
        "graft.runtime.load(sys.argv[1], native=sys.argv[2])(np.ones((3, 64), np.float32))"
    )
    status = {
        native: subprocess.run([sys.executable, "-c", code, path, native], capture_output=True, timeout=300).returncode
        for native in ("run", "refuse", "recompile")
    }
    assert status == {"run": 42, "refuse": 1, "recompile": 0}


def test_recompiled_program_runs_nothing_of_the_file(tmp_path: Path, kept: Path) -> None:
    path = tmp_path / "forged.graft"
    members = members_of(kept.read_bytes())
    name = next(one for one in members if one.startswith("modules/"))
    path.write_bytes(resealed({**members, name: b"\xcc" * len(members[name])}))
    program = load(path, native="recompile", threads=1)
    np.testing.assert_allclose(program(X), np.maximum(X @ WEIGHT, 0), rtol=1e-4, atol=1e-4)
    assert b"\xcc" * 64 not in program.description.modules[0].data
    assert [one.name for one in program.inputs] == ["x"]


def test_weights_that_are_packed_alone_cannot_be_compiled_anew(tmp_path: Path) -> None:
    path = tmp_path / "packed.graft"
    graft.compile(model(), ["llvm"], threads=1).save(path)
    with pytest.raises(ArtifactError) as caught:
        load(path, native="recompile")
    assert caught.value.message == (
        "the artifact's model cannot be compiled anew: 1 of its weights ('w') are there only as its machine code wants "
        "them; compile it with keep_weights=True"
    )


def test_recompilation_reads_no_other_file(tmp_path: Path, kept: Path) -> None:
    description = read(kept)
    proto = onnx.ModelProto.FromString(description.files["model.onnx"])
    tensor = proto.functions[0].node[0].attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    description.files["model.onnx"] = proto.SerializeToString()  # type: ignore[index]
    save(description, tmp_path / "external.graft")
    with pytest.raises(ArtifactError, match="a tensor of it lies in another file"):
        load(tmp_path / "external.graft", native="recompile")


def test_recompilation_needs_the_compiler(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graft.runtime.trust.policy.whole_recompiler", lambda: None)
    with pytest.raises(ArtifactError) as caught:
        load(kept, native="recompile")
    assert caught.value.message == f"'{kept}' cannot be compiled anew: graft-compiler is not installed here"


def test_policies_that_make_no_sense_are_refused(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFT_TRUSTED_KEYS", "")
    with pytest.raises(ArgumentError) as kind:
        load(kept, native="maybe")  # type: ignore[arg-type]
    assert kind.value.message == ("load: native is str 'maybe'; give one of run, signed, refuse, recompile, or None")
    with pytest.raises(InputError) as missing:
        load(kept, native="signed")
    assert missing.value.message == (
        "native='signed' needs trusted keys, and none are configured; give keys=PATH (docs/security.md)"
    )
    with pytest.raises(InputError) as both:
        load(kept, native="run", keys=tmp_path / "keys.toml")
    assert both.value.message == "keys are given, but native='run' looks at no signature; leave one of them out"
