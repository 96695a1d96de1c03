"""``--dim``: numbers and ranges of dimensions, for verbs that compile and for verbs that run."""

import json

import pytest


@pytest.fixture
def artifact(graft, symbolic, tmp_path):
    path = tmp_path / "any.graft"
    assert graft("compile", symbolic, "-o", path, "--dim", "batch=1..64").code == 0
    return path


def shapes(outcome):
    return [row["shape"] for row in json.loads(outcome.out)["outputs"]]


def test_an_artifact_runs_with_the_numbers_that_are_given(graft, artifact):
    assert shapes(graft("run", artifact, "--dim", "batch=5", "--json")) == [[5, 4]]
    assert shapes(graft("run", artifact, "--dim", "batch=64", "--json")) == [[64, 4]]


def test_without_numbers_small_ones_within_the_range_are_taken(graft, artifact):
    assert shapes(graft("run", artifact, "--json")) == [[2, 4]]


def test_a_model_runs_with_the_numbers_that_are_given(graft, symbolic):
    assert shapes(graft("run", symbolic, "--dim", "batch=7", "--json")) == [[7, 4]]


def test_a_number_outside_of_the_range_names_input_axis_and_symbol(graft, artifact):
    outcome = graft("run", artifact, "--dim", "batch=65")
    assert outcome.code == 1
    assert "input 'x' has 65 at axis 0, but dimension 'batch' is at most 64" in outcome.err


def test_an_artifact_has_its_ranges_already(graft, artifact):
    outcome = graft("run", artifact, "--dim", "batch=1..4")
    assert outcome.code == 2
    assert "is compiled already: a range of --dim is for models" in outcome.err
    assert graft("bench", artifact, "--dim", "batch=1..4").code == 2


def test_a_dimension_that_no_input_has_is_named(graft, artifact):
    outcome = graft("run", artifact, "--dim", "M=3")
    assert outcome.code == 1
    assert "no input has a dimension 'M'; there is 'batch'" in outcome.err


def test_several_numbers_are_measured_one_after_the_other(graft, symbolic, artifact):
    for source in (symbolic, artifact):
        outcome = graft("bench", source, "--dim", "batch=1,3", "--seconds", "0.01", "--json")
        assert [row["dims"] for row in json.loads(outcome.out)["bindings"]] == [{"batch": 1}, {"batch": 3}]
    assert "batch=3" in graft("bench", artifact, "--dim", "batch=1,3", "--seconds", "0.01").out


def test_verification_runs_with_the_numbers_that_are_given(graft, symbolic):
    assert graft("verify", symbolic, "--dim", "batch=3").code == 0


def test_several_numbers_are_verified_one_after_the_other(graft, symbolic):
    outcome = graft("verify", symbolic, "-b", "reference", "--dim", "batch=1,3")
    assert (outcome.code, outcome.out.count("OUTPUT")) == (0, 2)
    assert "batch=1\n" in outcome.out
    rows = json.loads(graft("verify", symbolic, "-b", "reference", "--dim", "batch=1,3", "--json").out)
    assert (rows["ok"], [row["dims"] for row in rows["bindings"]]) == (True, [{"batch": 1}, {"batch": 3}])


def test_inspect_lists_the_symbols_with_their_ranges(graft, artifact):
    out = graft("inspect", artifact).out
    assert "input      x float32 [batch, 4]" in out
    assert "symbol     batch 1..64: axis 0 of x" in out
    assert "arena      planned for each binding of the symbols" in out


def test_a_report_shows_symbolic_shapes(graft, artifact, tmp_path):
    assert graft("report", artifact, "-o", tmp_path / "r.html").code == 0
    assert "[batch, 4]" in (tmp_path / "r.html").read_text()


@pytest.fixture
def special(graft, symbolic, tmp_path):
    path = tmp_path / "special.graft"
    assert graft("compile", symbolic, "-o", path, "--specialize", "batch=3,5..7").code == 0
    return path


def test_inspect_lists_the_versions_of_a_specialized_artifact(graft, special):
    out = graft("inspect", special).out
    assert "input      x float32 [batch, 4]" in out
    assert "variant    main[batch=3]: x 3x4; 1 calls" in out
    assert "variant    main[batch=5..7]: x [batch, 4]; 1 calls" in out
    assert "main[batch=3] llvm_0_0_neg" in out
    assert json.loads(graft("inspect", special, "--json").out)["variants"] == [1, 2]


def test_a_specialized_artifact_runs_every_shape(graft, special):
    for batch in (2, 3, 6):
        assert shapes(graft("run", special, "--dim", f"batch={batch}", "--json")) == [[batch, 4]]


def test_a_profile_shows_the_kernels_of_the_version_that_ran(graft, special):
    rows = [json.loads(graft("profile", special, "--dim", f"batch={one}", "--json").out)["calls"] for one in (2, 3)]
    assert rows[0] != rows[1] and all(len(one) == 1 for one in rows)


def test_a_report_lists_the_versions(graft, special, tmp_path):
    assert graft("report", special, "-o", tmp_path / "r.html").code == 0
    assert "main[batch=5..7]" in (tmp_path / "r.html").read_text()


def test_versions_that_are_none_are_told(graft, symbolic):
    outcome = graft("compile", symbolic, "--specialize", "batch=3,x")
    assert outcome.code == 2
    assert "'batch=3,x' names no versions; write seq=128,384 or seq=128,1..64" in outcome.err
    wrong = "the model has no dimension 'bach' to specialize; did you mean 'batch'"
    outcome = graft("compile", symbolic, "--specialize", "bach=3")
    assert (outcome.code, wrong in outcome.err) == (1, True)
