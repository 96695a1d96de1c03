"""The table: ATen operators by overload, each with the row that writes it, and what is decomposed into them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from graft.torch.aten import (
    activations,
    elementwise,
    images,
    indexing,
    movement,
    ordering,
    products,
    quantized,
    recurrent,
    reductions,
)
from graft.torch.aten.decomposed import DECOMPOSED
from graft.torch.aten.movement import VIEWS

__all__ = ["ASSERTIONS", "ROWS", "VIEWS", "decompositions"]

ROWS: dict[Any, Callable[..., Any]] = {
    **elementwise.ROWS,
    **activations.ROWS,
    **movement.ROWS,
    **indexing.ROWS,
    **reductions.ROWS,
    **ordering.ROWS,
    **products.ROWS,
    **quantized.ROWS,
    **images.ROWS,
    **recurrent.ROWS,
}
"""A row takes a `Builder`, the fake result and the operator's arguments; it returns tensors, or raises `Refused`."""

aten = torch.ops.aten
RANDOM = (aten.bernoulli, aten.native_dropout, aten.rrelu_with_noise, aten.rrelu_with_noise_)
"""Left whole to PyTorch, whose generator draws the numbers that it draws without a compiler."""
ASSERTIONS = frozenset({
    aten._assert_async.default, aten._assert_async.msg, aten._assert_scalar.default,
    aten._assert_tensor_metadata.default, aten._linalg_check_errors.default, aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
})  # fmt: skip
"""Operators that compute nothing: PyTorch asserts what parts give, and a model of ONNX's has no assertions."""
FURTHER = (
    aten.addmv, aten.native_batch_norm, aten._native_batch_norm_legit,
    aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit.no_stats, aten.linalg_vector_norm,
    aten._batch_norm_with_update, aten._batch_norm_with_update_functional,
    aten.batch_norm_backward, aten.dist, aten.tril_indices, aten.triu_indices,
    aten.narrow_copy, aten.unbind_copy, aten.ldexp, aten.rrelu_with_noise_backward,
)  # fmt: skip
"""Decomposed, too, beside what PyTorch's core set leaves out."""


def decompositions(unrolled: Collection[Any] = tuple(recurrent.ROWS)) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions into its core set, less those of operators that have a row.

    Among them are those of operators that libraries, such as torchao, have registered by now, and those of recurrent
    layers that are to be ``unrolled``: a row takes such a layer whole, which only a model without gradients has.
    """
    from torch._decomp import core_aten_decompositions, get_decompositions, remove_decompositions

    found: dict[Any, Callable[..., Any]] = {**core_aten_decompositions(), **get_decompositions(FURTHER)}
    remove_decompositions(found, RANDOM)
    found |= DECOMPOSED
    return {operator: how for operator, how in found.items() if operator in unrolled or operator not in ROWS}
