"""What programs take and return: which types of values, and which of them travel as bytes."""

from __future__ import annotations

import onnx_ir as ir

from graft.core.graph.view import PACKABLE, constant_tensor, dtype_of, is_packed, type_text
from graft.errors import UnsupportedError
from graft.runtime.dtypes import ELEMENT_TYPES


def require_values(model: ir.Model) -> None:
    """Raise UnsupportedError if an input or output is nothing that programs exchange: a map, a sparse tensor."""
    for what, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        for value in values:
            known = value.dtype is not None and (value.dtype in PACKABLE or dtype_of(value.dtype) in ELEMENT_TYPES)
            if not known or isinstance(value.type, ir.SparseTensorType):
                raise UnsupportedError(
                    f"{what} '{value.name}' is of type {type_text(value)}; a program takes and returns tensors of "
                    f"{', '.join(ELEMENT_TYPES)}, strings and narrower numbers, and sequences and optionals of these: "
                    "cut the model there",
                    value=value.name,
                )


def packed_types(model: ir.Model) -> dict[str, dict[str, str]]:
    """Return the types of the inputs and outputs that are packed, by name."""
    inputs = [value for value in model.graph.inputs if constant_tensor(value) is None]
    places = {"inputs": inputs, "outputs": model.graph.outputs}
    found = {
        which: {value.name or "": type_text(value) for value in values if is_packed(value)}
        for which, values in places.items()
    }
    return found if any(found.values()) else {}
