import json
import re

import pytest


def test_plan_prints_its_summary(graft, model, npu):
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu)
    assert outcome.code == 0
    assert outcome.out.startswith("npu 1/3 ops (33.3 %, 1 region")
    assert "reference 2/3" in outcome.out


WHY = """\
BACKEND    CODE         OPERATORS  REASON                       OF TYPE    NODES
npu        no-pattern           1  npu has no rule for Relu     Relu 1     act
npu        no-pattern           1  npu has no rule for Sigmoid  Sigmoid 1  sig
reference  lost-to:npu          1  npu comes first              MatMul 1   mm

CODE         WHAT WOULD CHANGE IT
no-pattern   give the backend a rule or a composite for this operator, or a graph pass that rewrites it
lost-to:npu  name this backend earlier in -b, or move single operators with --pin NODE=BACKEND
"""


def test_why_gathers_the_refusals_and_says_what_would_change_them(graft, model, npu):
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu, "--why")
    assert outcome.out.partition("\n\n")[2] == WHY


def test_nodes_prints_every_operator(graft, model, npu):
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu, "--nodes")
    rows = [line.split(maxsplit=4) for line in outcome.out.splitlines()[2:]]
    assert rows == [
        ["NODE", "OPERATOR", "BACKEND", "REGION", "COMPOSITE  REFUSALS"],
        ["mm", "MatMul", "npu", "npu_0", "reference: lost-to:npu"],
        ["sig", "Sigmoid", "reference", "reference_0", "npu: no-pattern"],
        ["act", "Relu", "reference", "reference_0", "npu: no-pattern"],
    ]


def test_a_plan_in_bf16_says_which_products_are_rounded(graft, model):
    outcome = graft("plan", model, "-b", "llvm", "--precision", "bf16", "--nodes")
    assert outcome.code == 0
    assert "products in bf16 1/3" in outcome.out.splitlines()[0]
    assert [line.split() for line in outcome.out.splitlines()[2:]] == [
        ["NODE", "OPERATOR", "BACKEND", "REGION", "COMPOSITE", "PRODUCTS", "REFUSALS"],
        ["mm", "MatMul", "llvm", "llvm_0", "bf16"],
        ["sig", "Sigmoid", "llvm", "llvm_0"],
        ["act", "Relu", "llvm", "llvm_0"],
    ]
    data = json.loads(graft("plan", model, "-b", "llvm", "--precision", "bf16", "--json").out)
    assert [node.get("precision") for node in data["nodes"]] == ["bf16", None, None]
    assert "bf16" not in graft("plan", model, "-b", "llvm", "--nodes").out


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


def test_a_symbolic_dimension_may_have_a_number_or_a_range_and_needs_none(graft, symbolic):
    assert graft("plan", symbolic, "-b", "reference").code == 0
    for option in (
        ("--shape", "x:2x4"),
        ("--shape", "x=2,4"),
        ("--dim", "batch=2"),
        ("--dim", "batch=1..8"),
        ("--dim", "batch=1.."),
    ):
        assert graft("plan", symbolic, "-b", "reference", *option).code == 0


@pytest.mark.parametrize("text", ["N", "N=", "=3", "N=1x", "N=1,2", "N=..4", "N=-1"])
def test_what_is_no_dimension_is_a_usage_error(graft, symbolic, text):
    outcome = graft("plan", symbolic, "--dim", text)
    assert outcome.code == 2
    assert f"'{text}' is not a dimension; write seq=128 or seq=1..512" in outcome.err


def test_a_plugin_that_raises_while_planning_is_a_plugin_fault(graft, model, npu):
    npu.write_text(npu.read_text().replace('node.dtype == "float32"', "1 / 0"))
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", npu)
    assert outcome.code == 5
    assert outcome.err == (
        "graft: plugin 'npu' raised ZeroDivisionError in supports(MatMul (node 'mm')): division by zero "
        "(-v shows the traceback)\n"
    )


def test_a_backend_that_gets_nothing_fails_its_gate(graft, model, npu):
    arguments = ("plan", model, "-b", "npu,reference", "--plugin", npu, "--require-backend")
    assert graft(*arguments, "npu").code == 0
    outcome = graft(*arguments, "npu", "--exclude-op", "MatMul")
    assert outcome.code == 3
    assert outcome.err == ("graft: 'npu' has no operators, some are required; reasons: no-pattern 2, user-excluded 1\n")
    outcome = graft(*arguments, "cpu")
    assert outcome.code == 2
    assert "--require-backend names 'cpu', which is not among the backends npu, reference" in outcome.err


@pytest.mark.parametrize(("arguments", "code"), [
    (("--min-region-flops", "1000"), "region-too-small"),
    (("--max-regions", "0"), "region-too-small"),
    (("--exclude-node", "npu:mm"), "user-excluded"),
])  # fmt: skip
def test_constraints_are_reasons_in_the_plan(graft, model, npu, arguments, code):
    data = json.loads(graft("plan", model, "-b", "npu,reference", "--plugin", npu, "--json", *arguments).out)
    assert data["nodes"][0]["reasons"]["npu"][0] == code


COST = """
    def cost(self, region):
        from graft.core.operators.definition.table import Cost
        return Cost(10**15, 0)
"""


def test_placement_by_the_model_keeps_a_backend_that_says_it_is_slow_out(graft, model, npu):
    npu.write_text(npu.read_text() + COST)
    arguments = ("plan", model, "-b", "npu,reference", "--plugin", npu, "--place")
    assert graft(*arguments, "greedy").out.startswith("npu 1/3 ops")
    assert graft(*arguments, "model").out.startswith("npu 0/3 ops")
    said = "another placement is cheaper as a whole: "
    for output in (graft(*arguments, "model", "--why").out, graft(*arguments, "model", "--explain", "mm").out):
        assert said in output
        assert re.search(r" against \d+000 ms with npu here, by the model", output)
    found = json.loads(graft(*arguments, "model", "--json").out)["nodes"][0]["reasons"]["npu"]
    assert found[0] == "cost"
    assert found[1].startswith(said)


def test_placement_by_measuring_runs_plans_once_and_remembers(graft, model, npu, tmp_path, monkeypatch):
    from graft.compiler.plan_times import default_database
    from graft.partition.times import TimesDatabase

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    npu.write_text(npu.read_text().replace("arrays[0] @ arrays[1]", "[__import__('time').sleep(0.02)] and 0 or "
                                           "arrays[0] @ arrays[1]"))  # fmt: skip
    arguments = ("plan", model, "-b", "npu,reference", "--plugin", npu, "--place", "measured")
    assert graft(*arguments).out.startswith("npu 0/3 ops")
    assert default_database() == tmp_path / "cache" / "graft" / "times.sqlite3"
    times = dict(TimesDatabase(default_database()))
    assert {key.split()[0] for key in times} == {"plan"}
    assert graft(*arguments).out.startswith("npu 0/3 ops")
    assert dict(TimesDatabase(default_database())) == times


DIFF = """\
NODE  OPERATOR  CHANGE   BEFORE  AFTER      REASON
mm    MatMul    backend  npu     reference  user-excluded: operator 'MatMul' is excluded by the user
"""


def test_the_difference_of_two_plans_is_shown_by_node(graft, model, npu, tmp_path):
    arguments, old, new = ("plan", model, "-b", "npu,reference", "--plugin", npu), tmp_path / "a", tmp_path / "b"
    graft(*arguments, "-o", old)
    graft(*arguments, "-o", new, "--exclude-op", "MatMul")
    summaries, _, table = graft("plan", "diff", old, new).out.partition("\n\n")
    before, after = summaries.splitlines()
    assert before.startswith("before  npu 1/3 ops")
    assert after.startswith("after   npu 0/3 ops")
    assert table == DIFF
    assert graft("plan", "diff", old, new, "--exit-code").code == 1
    same = graft("plan", "diff", old, old, "--exit-code")
    assert (same.code, same.out.splitlines()[-1]) == (0, "no operator is placed differently")
    changes = json.loads(graft("plan", "diff", old, new, "--json").out)["changes"]
    assert [(one["node"], one["what"], one["before"], one["after"]) for one in changes] == [
        ("mm", "backend", "npu", "reference")
    ]


def test_a_file_that_is_no_plan_is_named(graft, model, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("{}")
    outcome = graft("plan", "diff", path, path)
    assert (outcome.code, outcome.err) == (
        1, f"graft: '{path}': the file is not a plan: its format is not 'graft.plan' (-v shows the traceback)\n"
    )  # fmt: skip


EXPLAINED = """\
Relu (node 'act'): reference

BACKEND  CODE        REASON
npu      no-pattern  npu has no rule for Relu

BACKEND  COMPOSITE        CODE        WHAT BECAME OF IT
npu      npu.matmul_relu  no-pattern  matched 1 of 2 operators, then at Sigmoid (node 'sig'): wanted MatMul
"""


@pytest.fixture
def relu_npu(tmp_path):
    (tmp_path / "relu_npu.py").write_text(
        "import graft\nfrom graft.patterns import is_op, wildcard\n"
        "class Npu(graft.JsonBackend):\n    name = 'npu'\n"
        "    @graft.supports(is_op('Relu')(is_op('MatMul')(wildcard(), wildcard())), name='npu.matmul_relu')\n"
        "    def matmul_relu(self, match): return True\n"
        "    def load(self, graph, constants): raise NotImplementedError\n"
    )
    return tmp_path / "relu_npu.py"


def test_explain_says_how_near_every_composite_came(graft, model, relu_npu):
    arguments = ("plan", model, "-b", "npu,reference", "--plugin", relu_npu, "--explain")
    assert graft(*arguments, "act").out == EXPLAINED
    data = json.loads(graft(*arguments, "act", "--json").out)
    assert [row["composite"] for row in data["patterns"]] == ["npu.matmul_relu"]
    assert data["reasons"] == {"npu": ["no-pattern", "npu has no rule for Relu"]}


def test_explain_of_a_node_that_the_simplified_model_lacks_names_the_nearest(graft, model, relu_npu):
    outcome = graft("plan", model, "-b", "npu,reference", "--plugin", relu_npu, "--explain", "acct")
    assert outcome.code == 1
    assert outcome.err == (
        "graft: the simplified model has no node 'acct'; did you mean 'act'?; "
        "`graft inspect MODEL --stage normalized --text` prints that model\n"
    )
