import json


def test_a_report_on_a_model_is_written_beside_it(graft, model, npu):
    outcome = graft("report", model, "-b", "npu,reference", "--plugin", npu)
    path = model.with_suffix(".html")
    assert outcome.code == 0
    assert outcome.out.splitlines()[0].startswith("npu 1/3 ops")
    assert outcome.out.splitlines()[1].startswith(f"{path}: ")
    assert "<h1>model.onnx</h1>" in path.read_text()


def test_plan_writes_the_same_report(graft, model, tmp_path):
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    assert graft("plan", model, "-b", "reference", "--html", first).code == 0
    assert graft("report", model, "-b", "reference", "-o", second).code == 0
    assert first.read_bytes() == second.read_bytes()


def test_a_report_on_an_artifact_shows_its_modules(graft, artifact, tmp_path):
    path = tmp_path / "page.html"
    data = json.loads(graft("report", artifact, "-o", path, "--json").out)
    assert data == {"report": str(path), "bytes": path.stat().st_size, "summary": data["summary"]}
    assert "<h2>Artifact</h2>" in path.read_text()


def test_options_are_for_models(graft, artifact):
    outcome = graft("report", artifact, "--min-region-ops", "2")
    assert outcome.code == 2
    assert f"graft: '{artifact}' is compiled already: --min-region-ops is for models" in outcome.err


def test_a_truncated_artifact_is_an_error(graft, artifact):
    artifact.write_bytes(artifact.read_bytes()[:-30])
    outcome = graft("report", artifact)
    assert (outcome.code, outcome.err.startswith(f"graft: '{artifact}' is damaged: ")) == (1, True)


def test_a_folder_is_no_page(graft, model, tmp_path):
    outcome = graft("report", model, "-o", tmp_path)
    assert outcome.code == 2
    assert f"'{tmp_path}' is a directory" in outcome.err
