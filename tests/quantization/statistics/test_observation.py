"""Observation: what observers see is what onnx.reference computes."""

from __future__ import annotations

import numpy as np

from graft.quantization.preparation import in_floats
from graft.quantization.statistics.data import Batches
from graft.quantization.statistics.observation import Largest, Mean, Running
from tests.quantization.networks import convolutions, images, run


class Everything:
    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def add(self, array: np.ndarray) -> None:
        self.seen.append(array)


def test_values_inputs_and_outputs_are_seen_batch_by_batch():
    one, x = in_floats(convolutions()), images(40)
    seen = {name: Everything() for name in ("x", "d", "y")}
    counted: list[tuple[int, int | None]] = []
    Running(threads=1).observe(
        one, {k: [v] for k, v in seen.items()}, Batches(x, one), lambda *one: counted.append(one)
    )
    assert counted == [(1, 2), (2, 2)]
    assert [len(array) for array in seen["d"].seen] == [32, 8]
    assert np.array_equal(np.concatenate(seen["x"].seen), x)
    np.testing.assert_allclose(np.concatenate(seen["y"].seen), run(one, x=x), rtol=1e-4, atol=1e-5)


def test_means_and_largest_elements_are_those_of_the_channel():
    x = images(20)
    mean, largest = Mean(1), Largest(1)
    for part in np.array_split(x, 3):
        mean.add(part)
        largest.add(part)
    np.testing.assert_allclose(mean.means, x.mean(axis=(0, 2, 3), dtype=np.float64))
    assert np.array_equal(largest.sizes, np.abs(x).max(axis=(0, 2, 3)))


def test_the_model_is_left_as_it_was():
    one = in_floats(convolutions())
    outputs = [value.name for value in one.graph.outputs]
    found = Running().runner(one, ["d", "e", "d"])({"x": images(2)})
    assert [value.name for value in one.graph.outputs] == outputs
    assert {"x", "d", "e", "y"} <= set(found)
