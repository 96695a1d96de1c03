"""ONNX's own test suite as data: every case that the onnx package ships, what runs it, and how its results compare.

Nothing is downloaded: the "real" models are those of the package, with their expected outputs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

from benchmarks.data.exact_results import EXACT

KINDS = ("node", "simple", "real", "pytorch-converted", "pytorch-operator")
RANDOM = {
    "test_bernoulli": 1000, "test_bernoulli_double": 1000, "test_bernoulli_seed": 1,
    "test_bernoulli_expanded": 1000, "test_bernoulli_double_expanded": 1000, "test_bernoulli_seed_expanded": 1,
}  # fmt: skip
"""Cases whose results are random, with the runs over which their sums are taken: one where the seed is given."""

Values = list[Any]


@dataclass(frozen=True)
class Case:
    """A model with its tolerance; `data` reads inputs and what they must give."""

    name: str
    kind: str
    path: Path | None
    given: onnx.ModelProto | None
    rtol: float
    atol: float
    sets: Sequence[tuple[Sequence[Any], Sequence[Any]]] = ()

    @property
    def model(self) -> onnx.ModelProto:
        """The model, read anew where it is a file."""
        return self.given if self.path is None else onnx.load(self.path)

    def data(self, model: onnx.ModelProto) -> list[tuple[Values, Values]]:
        """Return each data set's inputs and expected outputs, in the model's order."""
        if self.path is None:
            return [([_array(one) for one in given], [_array(one) for one in wanted]) for given, wanted in self.sets]
        if self.kind == "real":
            return [_light_data(self.path, model)]
        folders = sorted(self.path.parent.glob("test_data_set*"))
        return [
            (_read(folder, "input", model.graph.input), _read(folder, "output", model.graph.output))
            for folder in folders
        ]


@cache
def all_cases() -> dict[str, Case]:
    """The cases by name, in the suite's order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = [(kind, test) for kind in KINDS for test in load_model_tests(kind=kind)]
    cases = {}
    for kind, test in found:
        path = None
        if kind == "real":
            path = Path(onnx.__file__).parents[1] / test.url
        elif test.model is None:
            path = Path(test.model_dir) / "model.onnx"
        assert test.name not in cases, test.name
        cases[test.name] = Case(test.name, kind, path, test.model, test.rtol, test.atol, test.data_sets or ())
    return cases


def check(case: Case, run: Callable[[Values], Sequence[Any]], sets: Sequence[tuple[Values, Values]]) -> None:
    """Raise AssertionError unless results are what the suite expects, by ONNX's own comparison.

    Random operators have the expected type, shape and values, and the mean that their probabilities say. Cases of which
    the exact result is known may give that.
    """
    for inputs, expected in sets:
        if case.name in RANDOM:
            _check_distribution(case, run, inputs, expected)
        else:
            results = [_array(one) for one in run(inputs)]
            try:
                _compare(case, list(expected), results)
            except AssertionError:
                if case.name not in EXACT:
                    raise
                _compare(case, [EXACT[case.name](inputs)], results)


def _compare(case: Case, expected: Any, result: Any) -> None:
    """Compare as ONNX's runner does, element by element in sequences (it cannot compare scalars there)."""
    if isinstance(expected, list):
        assert isinstance(result, list) and len(result) == len(expected), (expected, result)
        for one, other in zip(expected, result, strict=True):
            _compare(case, one, other)
    elif expected is None:
        assert result is None, result
    else:
        Runner.assert_similar_outputs([expected], [result], case.rtol, case.atol, case.name)


def _check_distribution(case: Case, run: Callable[[Values], Sequence[Any]], inputs: Values, expected: Values) -> None:
    """Check draws of 0 or 1 with the probabilities that are the input: their sum lies within 5 deviations.

    The function that ONNX gives draws a 1 where a uniform number is greater, which is with the probability of a 0.
    """
    runs = RANDOM[case.name]
    draws = np.stack([np.asarray(run(inputs)[0]) for _ in range(runs)])
    assert (draws.dtype, draws.shape[1:]) == (expected[0].dtype, expected[0].shape)
    assert np.isin(draws, (0, 1)).all(), draws
    probabilities = inputs[0].astype(np.float64)
    if case.name.endswith("_expanded"):
        probabilities = 1 - probabilities
    variance = (probabilities * (1 - probabilities)).sum() * runs
    assert abs(draws.sum(dtype=np.float64) - probabilities.sum() * runs) <= 5 * np.sqrt(variance)


def operator_of(name: str) -> str:
    """Return the operator that a case is about: of the model before its function was expanded; "" for other models."""
    cases = all_cases()
    case = cases.get(name.removesuffix("_expanded"), cases[name])
    if case.kind != "node" or case.given is None:
        return ""
    nodes = case.given.graph.node
    if len({node.op_type for node in nodes}) == 1 or name.endswith("_expanded"):
        return str(nodes[0].op_type)
    words = name.removeprefix("test_").replace("_", "")
    named = [node.op_type for node in nodes if words.startswith(node.op_type.lower())]
    return str(named[0] if named else nodes[-1].op_type)


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _read(folder: Path, what: str, values: Sequence[onnx.ValueInfoProto]) -> Values:
    """Return the values in files ``<what>_<n>.pb``, read by the types of the model's."""
    found = []
    for number in range(len(list(folder.glob(f"{what}_*.pb")))):
        data = (folder / f"{what}_{number}.pb").read_bytes()
        found.append(_parse(data, values[number].type.WhichOneof("value")))
    return found


def _parse(data: bytes, kind: str) -> Any:
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _light_data(path: Path, model: onnx.ModelProto) -> tuple[Values, Values]:
    """Return the ramp that ONNX's runner feeds its light models, and the outputs beside them."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(value) for value in model.graph.input if value.name not in constants]
    outputs = [
        numpy_helper.to_array(
            onnx.TensorProto.FromString(path.with_name(f"{path.stem}_output_{number}.pb").read_bytes())
        )
        for number in range(len(model.graph.output))
    ]
    return inputs, outputs


if __name__ == "__main__":
    sys.exit("this module is data; see python -m benchmarks.scoreboard")
