"""Translation of the exceptions that invalid models cause in other code into the ModelError that users get.

Attributes, ranks, types and counts of inputs that ONNX does not allow, and that its checker lets pass or that are read
before it is asked, meet rules that take them for granted; onnx itself then reads past its arrays or asks for more
memory than exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import onnx.version_converter
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.errors import ModelError

NONSENSE = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, StopIteration, TypeError, ValueError,
)  # fmt: skip
"""What a rule raises for what no valid node has."""
CONTRADICTIONS = (onnx.shape_inference.InferenceError, RuntimeError)
"""What onnx's inference raises of types and shapes that contradict each other."""
REFUSALS = (
    onnx.checker.ValidationError, onnx.version_converter.ConvertError, ir.serde.SerdeError,
    LookupError, MemoryError, OverflowError, TypeError, ValueError,
)  # fmt: skip
"""What else onnx and onnx_ir raise of a model that they cannot read or write."""


@contextmanager
def sound(view: NodeView) -> Iterator[None]:
    """Raise ModelError where a rule meets what no valid node has."""
    try:
        yield
    except NONSENSE as error:
        raise ModelError(
            f"{view.where}: its attributes and the shapes of its inputs do not go together "
            f"({error or type(error).__name__})",
            node=view.name,
        ) from error


@contextmanager
def readable() -> Iterator[None]:
    """Raise ModelError where onnx or onnx_ir cannot read or write a model."""
    try:
        yield
    except REFUSALS as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # onnx_ir says of each part in turn that it has a wrong one
            cause = cause.__cause__
        raise ModelError(f"the model is not valid ONNX: {tidy(cause)}") from error


def tidy(error: BaseException) -> str:
    """Return the text of an error of onnx on one line, without the marks of its log; its name where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
