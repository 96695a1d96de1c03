"""Models of one layer to be quantised by a vendor's recipe: the hard shapes of operators, weights constant.

Numbers are such that scales and zero points matter: operands lie off zero, each in a range of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.testkit.conformance.cases.hard_shapes import ROWS, Row, hard_shapes, written
from graft.testkit.conformance.cases.outcome import Trial

LARGEST = 4096
"""The elements of an operand: larger ones take long in a vendor's simulator and show nothing more."""
PAIRS = (((2, 5, 3), (2, 5, 3)), ((1, 4, 5, 3), (4, 1, 1)), ((3, 3), (3, 1)), ((3,), (3, 3)), ((2, 1, 3), (5, 1)))
"""The shapes of operands of arithmetic."""
ARITHMETIC = ("Add", "Sub", "Mul")


def quantized_layers(added: tuple[str, ...]) -> Iterator[tuple[str, Trial]]:
    """Give models of one operator that recipes quantise, or that this one adds (``added``), with their names."""
    names = {name for name in ROWS if _is_quantizable(name)} | {"Add", *added}
    for operator in sorted(names):
        pairs = ((str(row), written(operator, row)) for row in map(Row, PAIRS) if operator in ARITHMETIC)
        for name, trial in chain(hard_shapes(operator), pairs):
            if trial is not None and all(_is_plain(array) for array in trial.feeds.values()):
                yield f"{operator}-{name}", _with_constant_weights(operator, trial)


def _is_quantizable(operator: str) -> bool:
    row = OPERATORS.get(operator)
    return row is not None and Trait.QUANTIZABLE in row.traits


def _is_plain(array: np.ndarray) -> bool:
    return 0 < prod(array.shape) <= LARGEST and bool(np.isfinite(array).all())


def _with_constant_weights(operator: str, trial: Trial) -> Trial:
    """Return a model whose inputs lie off zero, each wider than the one before; weights are constants."""
    row = OPERATORS.get(operator)
    has_weights = row is not None and row.channels_of_weights is not None
    proto, feeds = onnx.ModelProto(), {}
    proto.CopyFrom(trial.proto)
    for place, (name, array) in enumerate(trial.feeds.items()):
        if place and has_weights:
            proto.graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            feeds[name] = (array * (1 + 2 * place) + 1).astype(array.dtype)
    kept = [one for one in proto.graph.input if one.name in feeds]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return Trial(proto, feeds)
