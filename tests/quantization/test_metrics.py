"""Metrics: accuracy, and those of users."""

from __future__ import annotations

import numpy as np
import pytest

from graft.errors import RecipeError
from graft.quantization.metrics import Scores, accuracy, score
from graft.quantization.statistics.data import Batch


def test_accuracy_is_the_share_of_labels_that_are_named():
    logits = np.array([[0, 1], [3, 2], [0, 5], [1, 0]])
    assert accuracy({"y": logits}, np.array([1, 0, 0, 0])) == 0.75


def test_a_metric_gets_all_rows_of_all_batches():
    seen = {}

    def metric(outputs, labels):
        seen.update(outputs=outputs, labels=labels)
        return -1.5

    data = [Batch({"x": np.full((2, 1), k)}, np.array([k, k])) for k in range(3)]
    assert score(lambda feeds: {"y": feeds["x"] * 2, "z": feeds["x"]}, ["y"], data, metric) == -1.5
    assert list(seen["outputs"]) == ["y"]
    assert seen["outputs"]["y"].reshape(-1).tolist() == [0, 0, 2, 2, 4, 4]
    assert seen["labels"].tolist() == [0, 0, 1, 1, 2, 2]


def test_without_labels_and_metric_there_is_no_number():
    scores = Scores()
    scores.add({"y": np.zeros((1, 2))}, None)
    assert scores.value(None) is None
    assert scores.value(lambda outputs, labels: 3) == 3.0


def test_what_a_users_function_raises_is_told():
    scores = Scores()
    scores.add({"y": np.zeros((1, 2))}, None)
    with pytest.raises(RecipeError, match=r"the metric failed \(KeyError: 'z'\)"):
        scores.value(lambda outputs, labels: outputs["z"])


@pytest.mark.parametrize(("given", "shown"), [(None, "None"), (float("nan"), "nan"), ("good", "'good'")])
def test_what_is_no_number_is_refused(given, shown):
    scores = Scores()
    scores.add({"y": np.zeros((1, 2))}, None)
    with pytest.raises(RecipeError, match=f"the metric gave {shown}; give a number, the larger the better"):
        scores.value(lambda outputs, labels: given)
