"""ONNX's own node tests by operator: what the kit starts from, for operators that it knows nothing else about."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case import node as node_tests
from onnx.backend.test.case.test_case import TestCase

from graft.testkit.conformance.cases.outcome import Trial

RANDOM = frozenset(
    {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)
"""Operators whose results are not said by their inputs."""


@cache
def tests_of(operator: str) -> Mapping[str, Trial]:
    """Return the tests of one node of an operator, by name; those that exchange other things than tensors are left out.

    ONNX computes the tests of a module when it is imported, so none is but those in which a name begins as the
    operator's does: functions of one node, as CastLike, have tests of that node, too.
    """
    domain, _, op_type = operator.rpartition("::")
    if op_type in RANDOM:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, text in _modules().items():
            if re.search(rf"\b{op_type}", text):
                import_module(module)
    found = ((test.name, _trial(test, domain, op_type)) for test in node_tests._NodeTestCases)
    return {name: trial for name, trial in found if trial is not None}


@cache
def _modules() -> Mapping[str, str]:
    """Return the source of ONNX's modules of node tests, by module, in the order in which ONNX imports them."""
    packages = walk_packages(node_tests.__path__, f"{node_tests.__name__}.")
    specs = (find_spec(one.name) for one in packages if not one.ispkg)
    return {one.name: Path(one.origin).read_text(encoding="utf-8") for one in specs if one is not None and one.origin}


def _trial(test: TestCase, domain: str, op_type: str) -> Trial | None:
    """Return a test of one node of an operator as a trial; None if it is of another one, or something is no tensor."""
    if test.model is None or not test.data_sets or len(test.model.graph.node) != 1:
        return None
    graph = test.model.graph
    node = graph.node[0]
    if (node.domain if node.domain != "ai.onnx" else "", node.op_type) != (domain, op_type):
        return None
    given, wanted = ([_array(one) for one in arrays] for arrays in test.data_sets[0])
    feeds = {value.name: array for value, array in zip(graph.input, given, strict=False) if array is not None}
    expected = {value.name: array for value, array in zip(graph.output, wanted, strict=False) if array is not None}
    are_tensors = (len(feeds), len(expected)) == (len(given), len(wanted))
    return Trial(test.model, feeds, expected) if are_tensors else None


def _array(value: object) -> np.ndarray | None:
    """Return a tensor's contents, None for sequences, optionals and texts."""
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    return value if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU" else None
