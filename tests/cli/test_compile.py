import json
import zipfile

REPORT = """
    def report(self, module): return ModuleReport("Cycles", "7 cycles", {"cycles": 7})

from graft.plugins.backend import ModuleReport
"""


def test_compile_writes_an_artifact_beside_the_model(graft, model):
    outcome = graft("compile", model, "-b", "reference")
    path = model.with_suffix(".graft")
    first, second = outcome.out.splitlines()
    assert first.startswith("reference 3/3 ops")
    assert second.startswith(f"{path}: ")
    assert "manifest.json" in zipfile.ZipFile(path).namelist()


def test_compile_says_in_json_what_it_made(graft, model, tmp_path):
    path = tmp_path / "out.graft"
    data = json.loads(graft("compile", model, "-o", path, "-b", "reference", "--json").out)
    assert (data["artifact"], data["bytes"]) == (str(path), path.stat().st_size)
    assert "stitch" in data["seconds"]
    assert 0 < data["seconds"]["save"] < 60


def test_help_says_what_is_taken_by_default(graft):
    text = " ".join(graft("compile", "--help").out.split())
    assert "[default: native]" in text and "[default: binding]" in text


def test_stages_are_not_kept_in_a_file(graft, model):
    outcome = graft("compile", model, "-b", "reference", "--keep-intermediates", model)
    assert outcome.code == 2
    assert f"Directory '{model}' is a file" in outcome.err


def test_with_its_weights_kept_an_artifact_is_compiled_anew_where_it_runs(graft, model, tmp_path):
    path = tmp_path / "kept.graft"
    assert graft("compile", "--keep-weights", model, "-b", "llvm", "-o", path).code == 0
    assert graft("run", path, "--native", "recompile").code == 0


def test_every_edited_source_is_for_an_artifact(graft, model):
    outcome = graft("compile", model, "--source", "a=b.c", "--source", "c=d.c")
    assert outcome.code == 2
    assert "compile --source" in outcome.err


def test_operators_that_a_device_with_a_report_refuses_are_listed(graft, model, npu):
    npu.write_text(npu.read_text() + REPORT)
    arguments = ("compile", model, "-b", "npu,reference", "--plugin", npu, "--exclude-node", "sig")
    operators = json.loads(graft(*arguments, "--json").out)["operators"]
    assert operators["placed"] == {"npu": 1, "reference": 2}
    assert {one["backend"] for one in operators["refused"]} == {"npu"}
    lines = graft(*arguments).out.splitlines()
    assert "operators: npu 1, reference 2" in lines
    assert any(line.startswith("NOT ON") for line in lines)


def test_a_failed_coverage_gate_writes_nothing(graft, model, npu, tmp_path):
    path = tmp_path / "out.graft"
    arguments = ("-b", "npu,reference", "--plugin", npu, "--require-coverage", "50")
    assert graft("compile", model, "-o", path, *arguments).code == 3
    assert not path.exists()


def test_intermediates_are_kept(graft, model, tmp_path):
    folder = tmp_path / "stages"
    assert graft("compile", model, "-b", "reference", "--keep-intermediates", folder).code == 0
    assert {"01_normalized.onnx", "02_partitioned.onnx"} <= {path.name for path in folder.iterdir()}


def test_a_region_that_its_backend_cannot_compile_goes_to_the_next(graft, model, npu):
    npu.write_text(npu.read_text() + "\n    def compile(self, region, options): raise OSError('no license')\n")
    arguments = ("compile", model, "-b", "npu,reference", "--plugin", npu)
    outcome = graft(*arguments)
    assert outcome.code == 0
    assert outcome.out.startswith("npu 0/3 ops")
    strict = graft(*arguments, "--strict")
    assert strict.code == 5
    assert "OSError" in strict.err
    assert "no license" in strict.err


def test_a_place_that_cannot_be_written_is_a_failure(graft, model, tmp_path):
    outcome = graft("compile", model, "-b", "reference", "-o", tmp_path / "none" / "out.graft")
    assert outcome.code == 1
    assert outcome.err.startswith(
        f"graft: cannot write artifact '{tmp_path}/none/out.graft': there is no folder '{tmp_path}/none', make it first"
    )


def test_a_saved_plan_is_followed(graft, model, npu, tmp_path):
    path = tmp_path / "plan.json"
    arguments = ("-b", "npu,reference", "--plugin", npu)
    graft("plan", model, *arguments, "--exclude-node", "mm", "-o", path)
    outcome = graft("compile", model, *arguments, "--plan", path)
    assert outcome.out.startswith("npu 0/3 ops")


def test_the_time_of_every_stage_is_printed(graft, model):
    lines = graft("compile", model, "-b", "llvm", "--no-cache", "--time").out.splitlines()
    assert lines[2].split() == ["STAGE", "MILLISECONDS", "SHARE", "%"]
    stages = [line.split()[0] for line in lines[3:]]
    assert stages[:4] == ["load", "normalize", "partition", "region:llvm_0"]
    assert {"lower", "schedule", "emit", "llvm", "link"} <= set(stages[4:])
    assert stages[-3:] == ["stitch", "describe", "save"]
    outer = [line.split() for line in lines[3:] if not line.startswith(" ")]
    assert abs(sum(float(share) for *_, share in outer) - 100) < 1
    assert abs(sum(float(milliseconds) for _, milliseconds, _ in outer) / 1e3 - float(lines[1].split()[-2])) < 0.06


def test_a_second_compilation_finds_the_kernels_of_the_first(graft, model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arguments = ("compile", model, "-b", "llvm", "--json")
    assert "region:llvm_0/llvm" in json.loads(graft(*arguments).out)["seconds"]
    kept = json.loads(graft("cache", "--json").out)
    assert kept["directory"] == str(tmp_path / "graft" / "kernels")
    assert kept["kernels"] > 0
    assert "region:llvm_0/llvm" not in json.loads(graft(*arguments).out)["seconds"]
    assert "region:llvm_0/llvm" in json.loads(graft(*arguments, "--no-cache").out)["seconds"]
    count = kept["kernels"]
    assert graft("cache").out.startswith(f"{tmp_path}/graft/kernels: {count} kernels, ")
    assert graft("cache", "clear").out == f"{count} kernels removed\n"
    assert json.loads(graft("cache", "--json").out)["kernels"] == 0


def test_an_edited_plan_is_followed_on_its_own_backends(graft, model, tmp_path):
    path = tmp_path / "plan.json"
    graft("plan", model, "-b", "llvm,reference", "-o", path)
    data = json.loads(path.read_text())
    data["nodes"][1]["backend"] = "reference"
    path.write_text(json.dumps(data))
    assert graft("compile", model, "--plan", path).out.startswith("llvm 2/3 ops")


def test_a_plan_of_another_model_is_refused(graft, model, symbolic, tmp_path):
    path = tmp_path / "plan.json"
    graft("plan", model, "-b", "reference", "-o", path)
    outcome = graft("compile", symbolic, "--shape", "x:2x4", "--plan", path)
    assert outcome.code == 1
    assert outcome.err.startswith("graft: the plan is for another model: its fingerprint is ")


def test_a_region_of_a_plan_that_cannot_be_compiled_is_an_error(graft, model, npu, tmp_path):
    path = tmp_path / "plan.json"
    arguments = (model, "-b", "npu,reference", "--plugin", npu)
    graft("plan", *arguments, "-o", path)
    npu.write_text(npu.read_text() + "\n    def compile(self, region, options): raise OSError('no license')\n")
    outcome = graft("compile", *arguments, "--plan", path)
    assert outcome.code == 5
    assert "no license" in outcome.err


def test_a_backend_that_gets_nothing_fails_its_gate(graft, model, npu, tmp_path):
    path = tmp_path / "out.graft"
    arguments = ("-b", "npu,reference", "--plugin", npu, "--exclude-op", "MatMul", "--require-backend", "npu")
    assert graft("compile", model, "-o", path, *arguments).code == 3
    assert not path.exists()


def test_the_precision_is_kept_and_shown(graft, model, tmp_path):
    path = tmp_path / "out.graft"
    assert graft("compile", model, "-o", path, "-b", "llvm", "--precision", "bf16").code == 0
    assert "precision  bf16" in graft("inspect", path).out.splitlines()
    assert graft("run", model, "-b", "llvm", "--precision", "bf16").code == 0
    assert graft("profile", model, "-b", "llvm", "--precision", "bf16", "--runs", "1").code == 0
    assert graft("bench", model, "-b", "llvm", "--precision", "bf16", "--seconds", "0").code == 0


def test_an_artifact_has_its_precision_already(graft, artifact):
    for verb in ("run", "profile", "bench"):
        outcome = graft(verb, artifact, "--precision", "bf16")
        assert outcome.code == 2
        assert f"'{artifact}' is compiled already" in outcome.err
        assert "--precision" in outcome.err


def test_tuning_is_reported_kept_and_listed(graft, model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = graft("compile", model, "-b", "llvm", "--tune-seconds", "30").out.splitlines()
    assert lines[1].startswith("tuned 1 of 1 workloads in ")
    again = json.loads(graft("compile", model, "-b", "llvm", "--tune", "--json").out)["tuning"]
    assert (again["workloads"], again["finished"]) == (1, 1)
    assert [row["workload"] for row in again["tuned"]] == ["matmul_sigmoid_relu 1x4, 4x2"]
    (row,) = json.loads(graft("cache", "tuned", "--json").out)
    assert (row["label"], row["stage"]) == ("matmul_sigmoid_relu 1x4, 4x2", 3)
    assert graft("cache", "tuned").out.splitlines()[1].startswith("matmul_sigmoid_relu 1x4, 4x2")
    assert f"{tmp_path}/graft/tuned.sqlite3: 1 tuned workloads" in graft("cache").out.splitlines()
    assert "1 tuned parameters removed" in graft("cache", "clear", "--what", "all").out.splitlines()
    assert json.loads(graft("cache", "--json").out)["tuned"] == 0


def test_dimensions_to_tune_at_want_tuning(graft, model):
    outcome = graft("compile", model, "--tune-dim", "n=1,2")
    assert outcome.code == 2
    assert "--tune-dim, --tune-trials and --tune-goal say how --tune measures; give that, too" in outcome.err
    outcome = graft("compile", model, "--tune", "--tune-dim", "n=1..2")
    assert outcome.code == 2
    assert "'n=1..2' names no values; write n=16,128" in outcome.err


def test_tuning_and_no_tuned_exclude_each_other(graft, model):
    outcome = graft("compile", model, "--tune", "--no-tuned")
    assert outcome.code == 2
    assert "--tune finds what --no-tuned forbids to use; leave one of them out" in outcome.err


def test_a_broken_database_of_tunings_fails_by_name(graft, model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "graft").mkdir()
    (tmp_path / "graft" / "tuned.sqlite3").write_text("notes " * 100)
    outcome = graft("compile", model, "-b", "llvm,reference")
    assert outcome.code == 1
    assert outcome.err.startswith(f"graft: the database of tuned parameters '{tmp_path}/graft/tuned.sqlite3' cannot")
    assert graft("compile", model, "-b", "llvm,reference", "--no-tuned").code == 0
