import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

import graft.runtime

loads_artifacts = pytest.mark.skipif(
    not hasattr(graft.runtime, "load"), reason="graft.runtime.load is missing: artifacts cannot be loaded yet"
)
X = np.array([[1, -1, 0.5, 0.25]], np.float32)
W = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
Y = 1 / (1 + np.exp(-(X @ W)))


@pytest.fixture
def given(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return f"x=@{tmp_path / 'x.npy'}"


@pytest.mark.parametrize("what", ["model", pytest.param("artifact", marks=loads_artifacts)])
def test_run_writes_the_outputs_of_a_model_and_of_an_artifact(graft, request, given, tmp_path, what):
    path = request.getfixturevalue(what)
    backends = ("-b", "reference") if what == "model" else ()
    outcome = graft("run", path, "--input", given, "--output", tmp_path / "out", *backends)
    assert outcome.code == 0
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), Y, 1e-5)
    assert outcome.out.splitlines()[1].split()[:3] == ["y", "float32", "1x2"]


@loads_artifacts
def test_run_gives_facts_as_json(graft, artifact, given):
    (row,) = json.loads(graft("run", artifact, "--input", given, "--json").out)["outputs"]
    assert (row["name"], row["dtype"], row["shape"]) == ("y", "float32", [1, 2])
    assert row["max"] == pytest.approx(float(Y.max()), rel=1e-5)


def test_run_uses_the_backend_of_a_plugin_file(graft, model, npu, given):
    outcome = graft("run", model, "-b", "npu,reference", "--plugin", npu, "--input", given, "--json")
    assert json.loads(outcome.out)["outputs"][0]["max"] == pytest.approx(float(Y.max()), rel=1e-5)


@loads_artifacts
def test_an_artifact_runs_with_the_plugin_file_that_it_needs(graft, model, npu, given, tmp_path):
    path = tmp_path / "npu.graft"
    graft("compile", model, "-b", "npu,reference", "--plugin", npu, "-o", path)
    outcome = graft("run", path, "--plugin", npu, "--input", given, "--json")
    assert json.loads(outcome.out)["outputs"][0]["max"] == pytest.approx(float(Y.max()), rel=1e-5)


def test_an_unknown_input_is_a_failure(graft, model):
    outcome = graft("run", model, "-b", "reference", "--input", "z=[1]")
    assert outcome.code == 1
    assert "'z'" in outcome.err


def test_an_input_without_contents_is_a_usage_error(graft, artifact):
    outcome = graft("run", artifact, "--input", "x")
    assert outcome.code == 2
    assert "Invalid value for '--input': 'x' is not an input; write NAME=@FILE.npy or NAME=[1, 2]" in outcome.err


def test_backends_of_an_artifact_are_a_usage_error(graft, artifact):
    outcome = graft("run", artifact, "-b", "llvm")
    assert outcome.code == 2
    assert f"'{artifact}' is compiled already: -b is for models" in outcome.err


def test_verify_agrees_and_shows_the_errors(graft, model):
    outcome = graft("verify", model, "-b", "reference", "--per-region")
    assert outcome.code == 0
    assert outcome.out.splitlines()[-1] == f"{model} agrees with reference (rtol 0.001, atol 0.0001)"
    assert "reference_0" in outcome.out


def test_verify_of_a_wrong_backend_is_the_accuracy_gate(graft, model, npu):
    npu.write_text(npu.read_text().replace("arrays[0] @ arrays[1]", "arrays[0] @ arrays[1] - 1"))
    outcome = graft("verify", model, "-b", "npu,reference", "--plugin", npu, "--per-region", "--json")
    assert outcome.code == 4
    regions = {row["region"]: row["isolated"]["ok"] for row in json.loads(outcome.out)["regions"]}
    assert regions == {"npu_0": False, "reference_0": True}


@loads_artifacts
def test_verify_of_an_artifact_needs_its_model(graft, artifact, model):
    outcome = graft("verify", artifact)
    assert outcome.code == 2
    assert f"'{artifact}' is an artifact; name the model that it came from with --model" in outcome.err
    assert graft("verify", artifact, "--model", model).code == 0


def test_verify_of_a_model_takes_no_second_model(graft, model):
    outcome = graft("verify", model, "--model", model)
    assert outcome.code == 2
    assert f"'{model}' is a model itself; --model goes with an artifact" in outcome.err


@loads_artifacts
def test_bench_measures_a_model_and_an_artifact(graft, model, artifact):
    for arguments in ((model, "-b", "reference"), (artifact,), (artifact, "--model", model)):
        report = json.loads(graft("bench", *arguments, "--seconds", "0.01", "--json").out)
        assert [row["name"] for row in report["rows"]] == ["graft"]
        assert report["rows"][0]["rounds"] >= 5


@loads_artifacts
def test_bench_of_an_artifact_needs_its_model_to_compare(graft, artifact):
    outcome = graft("bench", artifact, "--compare", "onnxruntime")
    assert outcome.code == 2
    assert f"'{artifact}' is an artifact; name the model that it came from with --model to compare" in outcome.err


def test_bench_compares_with_a_peer(graft, model):
    pytest.importorskip("onnxruntime")
    outcome = graft("bench", model, "-b", "reference", "--compare", "onnxruntime", "--threads", 1, "--seconds", "0.01")
    assert [line.split()[0] for line in outcome.out.splitlines()[1:3]] == ["graft", "onnxruntime"]


def test_profile_writes_a_trace_of_every_call(graft, model, tmp_path):
    path = tmp_path / "trace.json"
    outcome = graft("profile", model, "-b", "reference", "-o", path, "--runs", 1)
    assert outcome.code == 0
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["name"] for event in events] == ["reference_0"]
    assert set(events[0]["args"]["nodes"]) == {"mm", "sig", "act"}
    assert events[0]["args"]["gbytes"] > 0


def test_profile_compares_every_call_with_the_limits_of_the_machine(graft, model):
    outcome = graft("profile", model, "-b", "llvm", "--runs", 2)
    head, first, *_, limits, _ = outcome.out.splitlines()
    columns = ["MICROSECONDS", "SHARE", "%", "GFLOP/s", "GB/s", "OF", "LIMIT", "%", "FUNCTION", "STRATEGY", "NODES"]
    assert head.split() == columns
    assert first.split()[5].startswith("llvm_0_")
    assert limits.startswith("one core: ")
    (call, *_) = json.loads(graft("profile", model, "-b", "llvm", "--runs", 1, "--json").out)["calls"]
    assert call["gbytes"] > 0
    assert call["of_limit"] > 0
    assert call["schedule"]["strategy"] == "blocked_product"


def test_bench_measures_the_machine_by_itself(graft):
    found = json.loads(graft("bench", "--roofline", "--json").out)
    assert found["flops"] > 0
    assert [size for size, _ in found["bandwidth"]] == [16 << 10, 512 << 10, 8 << 20, 256 << 20]
    assert all(rate > 0 for _, rate in found["bandwidth"])


def test_bench_needs_a_file_or_the_machine(graft):
    outcome = graft("bench")
    assert outcome.code == 2
    assert "name a FILE to measure, or --roofline for the machine by itself" in outcome.err


def test_inspecting_an_artifact_needs_neither_onnx_nor_a_compiler(artifact):
    code = (
        "import sys\nfrom graft.cli.main import main\n"
        f"try: main(['inspect', {str(artifact)!r}])\n"
        "finally: print(sorted({'onnx', 'onnx_ir', 'llvmlite'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("verb", ["run", "profile", "bench", "compile"])
def test_an_unknown_optimisation_to_switch_off_is_a_failure(graft, model, verb):
    outcome = graft(verb, model, "-b", "llvm", "--switch-off", "fusoin")
    assert outcome.code == 1
    assert "there is no optimisation 'fusoin' to switch off; did you mean 'fusion'" in outcome.err


def test_a_model_is_compiled_without_what_is_switched_off(graft, model):
    usual, plain = (
        {row["function"] for row in json.loads(graft("profile", model, "-b", "llvm", "--json", *switch).out)["calls"]}
        for switch in ((), ("--switch-off", "fusion"))
    )
    assert usual == {"llvm_0_0_matmul_sigmoid_relu"}
    assert plain == {"llvm_0_0_matmul", "llvm_0_1_sigmoid", "llvm_0_2_relu"}


@pytest.mark.parametrize("verb", ["run", "bench"])
def test_nothing_of_an_artifact_can_be_switched_off(graft, artifact, verb):
    outcome = graft(verb, artifact, "--switch-off", "fusion")
    assert outcome.code == 2
    assert f"'{artifact}' is compiled already: --switch-off is for models" in outcome.err


def test_run_names_the_node_that_gives_no_number(graft, tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 22]> g (float[2] x) => (float[2] y) { [log] y = Log (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "log.onnx")
    fine = graft("run", tmp_path / "log.onnx", "--input", "x=[1, 2]", "--check-numerics")
    assert fine.code == 0
    outcome = graft("run", tmp_path / "log.onnx", "--input", "x=[1, -2]", "--check-numerics")
    assert outcome.code == 1
    assert "Log (node 'log'): 'y' has 1 of 2 elements that are NaN, the first at [1]" in outcome.err


@loads_artifacts
def test_run_checks_no_numerics_of_an_artifact(graft, artifact, given):
    outcome = graft("run", artifact, "--input", given, "--check-numerics")
    assert outcome.code == 2
    assert "is compiled already: --check-numerics is for models" in outcome.err
