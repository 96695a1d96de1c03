"""ONNX's own node tests by operator: what the kit starts from, for operators that it knows nothing else about."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
from onnx import TensorProto, numpy_helper

from graft.testkit.conformance.outcome import Trial

RANDOM = frozenset(
    {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)
"""Operators whose results are not said by their inputs."""


@cache
def by_operator() -> dict[str, dict[str, Trial]]:
    """Return the tests of one node by operator and name; those that exchange other things than tensors are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    trials: dict[str, dict[str, Trial]] = {}
    for test in found:
        if test.model is None or not test.data_sets:
            continue
        graph = test.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type in RANDOM:
            continue
        given, wanted = ([_array(one) for one in arrays] for arrays in test.data_sets[0])
        if any(array is None for array in (*given, *wanted)):
            continue
        feeds = {value.name: array for value, array in zip(graph.input, given, strict=False) if array is not None}
        expected = {value.name: array for value, array in zip(graph.output, wanted, strict=False) if array is not None}
        trial = Trial(test.model, feeds, expected)
        trials.setdefault(_operator(graph.node[0].domain, graph.node[0].op_type), {})[test.name] = trial
    return dict(sorted(trials.items()))


def _operator(domain: str, op_type: str) -> str:
    return f"{domain}::{op_type}" if domain not in ("", "ai.onnx") else op_type


def _array(value: object) -> np.ndarray | None:
    """Return a tensor's contents, None for sequences, optionals and texts."""
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    return value if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU" else None
