"""The hooks of the built-in compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from graft.core.operators.definition.table import Operator
    from graft.plugins.backend import Backend


@hookimpl
def graft_backends() -> list[type[Backend]]:
    """Return the backend."""
    from graft.plugins.llvm.backend import LlvmBackend

    return [LlvmBackend]


@hookimpl
def graft_operators() -> list[Operator]:
    """Return the operators on scaled types, which every backend that generates code may take."""
    from graft.datatypes.scaled.matmul import matmul_operator
    from graft.datatypes.scaled.operators import operators

    return [*operators(), matmul_operator()]
