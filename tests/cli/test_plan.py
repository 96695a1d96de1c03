import json

import pytest


def test_plan_prints_its_summary(graft, model, npu):
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu)
    assert outcome.code == 0
    assert outcome.out.startswith("npu 1/3 ops (33.3 %, 1 region")
    assert "reference 2/3" in outcome.out


def test_why_prints_every_refusal(graft, model, npu):
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu, "--why")
    rows = [line.split(maxsplit=4) for line in outcome.out.splitlines()[1:]]
    assert rows[0] == ["NODE", "OPERATOR", "BACKEND", "CODE", "REASON"]
    assert ["sig", "Sigmoid", "npu", "no-pattern", "npu has no rule for Sigmoid"] in rows
    assert ["act", "Relu", "npu", "no-pattern", "npu has no rule for Relu"] in rows
    assert ["mm", "MatMul", "reference", "lost-to:npu", "npu comes first"] in rows


def test_plan_as_json_has_the_summary_and_every_node(graft, model):
    data = json.loads(graft("plan", model, "-b", "reference", "--json").out)
    assert [(node["node"], node["backend"]) for node in data["nodes"]] == [
        ("mm", "reference"),
        ("sig", "reference"),
        ("act", "reference"),
    ]
    assert data["summary"].startswith("reference 3/3 ops (100.0 %, 1 region")


def test_a_saved_plan_can_be_read_back(graft, model, tmp_path):
    from graft.partition.plan import Plan

    path = tmp_path / "plan.json"
    graft("plan", model, "-b", "reference", "-o", path)
    assert Plan.from_json(path.read_text()).backends == ("reference",)


@pytest.mark.parametrize(("coverage", "code"), [("30", 0), ("34", 3), ("reference:60", 0), ("reference:70", 3)])
def test_the_coverage_gate_counts_the_operators_of_a_backend(graft, model, npu, coverage, code):
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu, "--require-coverage", coverage)
    assert outcome.code == code


def test_the_coverage_gate_says_what_is_missing(graft, model, npu):
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu, "--require-coverage", "90")
    assert outcome.err == "graft: 'npu' has 33.3 % of the operators, 90 % are required; reasons: no-pattern 2\n"


def test_a_coverage_of_a_backend_that_does_not_take_part_is_a_usage_error(graft, model):
    outcome = graft("plan", model, "-b", "reference", "--require-coverage", "npu:5")
    assert outcome.code == 2
    assert "--require-coverage names 'npu', which is not among the backends reference" in outcome.err


@pytest.mark.parametrize("coverage", ["many", "101", "-1", "nan"])
def test_a_malformed_coverage_is_a_usage_error(graft, model, coverage):
    outcome = graft("plan", model, f"--require-coverage={coverage}")
    assert outcome.code == 2
    assert f"'{coverage}' is not a coverage; write a number from 0 to 100, or onednn:80" in outcome.err


def test_a_pin_and_an_exclusion_steer_the_plan(graft, model, npu):
    arguments = ("plan", model, "-b", "npu,reference", "--plugin", npu)
    assert graft(*arguments, "--pin", "mm=reference").out.startswith("npu 0/3")
    assert graft(*arguments, "--exclude-op", "MatMul").out.startswith("npu 0/3")
    assert graft(*arguments, "--min-region-ops", "2").out.startswith("npu 0/3")


def test_a_symbolic_dimension_needs_a_shape(graft, symbolic):
    outcome = graft("plan", symbolic, "-b", "reference")
    assert outcome.code == 1
    assert "--shape x:" in outcome.err
    for shape in ("x:2x4", "x=2,4"):
        assert graft("plan", symbolic, "-b", "reference", "--shape", shape).code == 0


def test_a_plugin_that_raises_while_planning_is_a_plugin_fault(graft, model, npu):
    npu.write_text(npu.read_text().replace('node.dtype == "float32"', "1 / 0"))
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu)
    assert outcome.code == 5
    assert outcome.err == (
        "graft: plugin 'npu' raised ZeroDivisionError in supports(MatMul (node 'mm')): division by zero "
        "(-v shows the traceback)\n"
    )
