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


def test_inspect_lists_the_symbols_with_their_ranges(graft, artifact):
    out = graft("inspect", artifact).out
    assert "input      x float32 [batch, 4]" in out
    assert "symbol     batch 1..64: axis 0 of x" in out
    assert "arena      planned for each binding of the symbols" in out


def test_a_report_shows_symbolic_shapes(graft, artifact, tmp_path):
    assert graft("report", artifact, "-o", tmp_path / "r.html").code == 0
    assert "[batch, 4]" in (tmp_path / "r.html").read_text()
