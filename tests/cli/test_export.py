import json
import shutil
import subprocess

import numpy as np
import pytest

import graft as package
from graft.core.machine.rows import COMPILED_FOR
from graft.core.machine.target import host_target

from .conftest import saved


@pytest.fixture(autouse=True)
def compiler():
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")


def test_a_model_becomes_a_library_that_runs(graft, model, tmp_path):
    outcome = graft("export", model, "-o", tmp_path / "m.so", "-b", "llvm")
    assert outcome.code == 0
    if features := ", ".join(sorted(host_target().features & COMPILED_FOR)):
        assert outcome.err == (
            f"warning: it is compiled for this machine (target 'native') and runs only where {features} are; name a "
            "target for other machines, as in --target x86-64-v3\n"
        )
    assert outcome.out.endswith(", functions graft_model_m_load, _run, ... (graft/model.h)\n")
    outcome = graft("inspect", tmp_path / "m.so")
    assert outcome.code == 0
    y = package.runtime.load(tmp_path / "m.so")(np.zeros((1, 4), np.float32))
    np.testing.assert_array_equal(y, [[0.5, 0.5]])


def test_a_library_for_a_target_that_was_named_is_no_surprise(graft, model, tmp_path):
    outcome = graft("export", model, "-o", tmp_path / "m.so", "-b", "llvm", "--target", host_target().arch)
    assert (outcome.code, outcome.err) == (0, "")


def test_an_artifact_becomes_a_library_that_says_what_it_needs(graft, artifact, tmp_path):
    outcome = graft("export", artifact, "-o", tmp_path / "m.so", "--name", "mine", "--json")
    assert outcome.code == 0
    facts = json.loads(outcome.out)
    assert facts["library"] == str(tmp_path / "m.so")
    assert facts["bytes"] == (tmp_path / "m.so").stat().st_size
    assert facts["name"] == "mine"
    assert [need["plugin"] for need in facts["needs"]] == ["reference"]
    outcome = graft("export", artifact, "-o", tmp_path / "m.so")
    assert "a program that opens it in C has to bring the loader of plugin 'reference' for '" in outcome.out


def test_a_model_becomes_a_project_without_a_compiler(graft, model, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    outcome = graft("export", model, "-o", tmp_path / "project", "--name", "m", "--profile", "bare-metal", "--json")
    assert outcome.code == 0, outcome.err
    facts = json.loads(outcome.out)
    assert (facts["name"], facts["profile"], facts["arena_bytes"] % 64) == ("m", "bare-metal", 0)
    monkeypatch.delenv("CC")
    done = subprocess.run(["make", "-C", tmp_path / "project", "check"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", ["", ":narrow_indices=true", ":compiles=false,narrow_indices=true"])
def test_c_source_with_options_only_writes_a_project_for_any_target(graft, model, tmp_path, monkeypatch, options):
    monkeypatch.setenv("CC", "no-such-compiler")
    outcome = graft("export", model, "-o", tmp_path / "m", "--target", "thumbv7em", "-b", f"c_source{options}")
    assert outcome.code == 0, outcome.err
    kernels = (tmp_path / "m" / "m_kernels.c").read_text()
    assert ("for (int32_t" in kernels) == bool(options)


def test_a_target_that_a_backend_has_no_code_for_is_told(graft, model, tmp_path):
    outcome = graft("export", model, "-o", tmp_path / "m", "--target", "thumbv7em", "-b", "c_source:compiles=true")
    assert outcome.code == 1
    assert outcome.err.startswith("graft: no backend generates code for target 'thumbv7em'; c_source: ")


def test_dimensions_with_ranges_are_planned_for_the_largest(graft, symbolic, tmp_path):
    assert graft("export", symbolic, "-o", tmp_path / "p", "--dim", "batch=1..8").code == 0
    assert "int p_run(int64_t batch, const float *x, float *y);" in (tmp_path / "p" / "p.h").read_text()


def test_given_inputs_are_recorded(graft, model, tmp_path):
    np.save(tmp_path / "x.npy", np.full((1, 4), 0.5, np.float32))
    outcome = graft("export", model, "-o", tmp_path / "p", "--input", f"x=@{tmp_path / 'x.npy'}")
    assert outcome.code == 0, outcome.err
    assert "0x1p-1f, 0x1p-1f" in (tmp_path / "p" / "p_check.c").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "m.so", "--ram", "7"], "--ram is for C projects; leave it out, or say --format c-project"),
        (["-o", "m.so", "--profile", "bare-metal"], "--profile is for C projects; leave it out, or say --format"),
        (["-o", "m.so", "--format", "tar"], "'tar' is not one of 'library', 'c-project'"),
        (["-o", "p", "--target", "z80"], "z80"),
        ([], "Missing option '-o'"),
    ],
)
def test_wrong_options_are_told(graft, model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    outcome = graft("export", model, *arguments)
    assert outcome.code in (1, 2)
    assert message in outcome.err
    assert not (tmp_path / "m.so").exists()
    assert not (tmp_path / "p").exists()


def test_options_of_models_are_refused_for_artifacts(graft, artifact, tmp_path):
    outcome = graft("export", artifact, "-o", tmp_path / "m.so", "-b", "llvm", "--target", "generic")
    assert outcome.code == 2
    assert "is compiled already: -b, --target are for models" in outcome.err


def test_an_operator_without_c_is_told(graft, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[n] y) { y = Unique(x) }'
    outcome = graft("export", saved(tmp_path / "m.onnx", text), "-o", tmp_path / "p")
    assert outcome.code == 1
    assert outcome.err.startswith("graft: no backend takes Unique (node 'y'): c_source: no-pattern: ")
    hint = "; add 'irregular' to the backends: the program can then be a library (-o FILE.so), but no C project\n"
    assert outcome.err.endswith(hint)
    assert not (tmp_path / "p").exists()
    web = graft("export", tmp_path / "m.onnx", "-o", tmp_path / "p", "--format", "wasm")
    assert web.err.endswith(hint.replace("C project", "module for the web"))


def test_a_model_becomes_a_module_for_the_web(graft, model, tmp_path):
    outcome = graft("export", model, "--json", "-o", str(tmp_path / "web"), "--format", "wasm")
    assert outcome.code == 0, outcome.err
    assert {"model.wasm", "model.js", "model.d.ts", "model.weights"} <= set(json.loads(outcome.out)["files"])
    assert (tmp_path / "web" / "model.wasm").read_bytes()[:4] == b"\0asm"
    assert graft("export", model, "-o", str(tmp_path / "scalar"), "--target", "wasm32").code == 0
