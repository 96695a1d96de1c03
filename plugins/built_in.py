"""What the backends in this tree share: native libraries that are built with Graft, and tables of operators."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from graft.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graft.core.graph.view import NodeView
    from graft.core.reject import Reject
    from graft.patterns.composite import Composite


class OfTable:
    """A backend whose composites and refusals stand in a module, which is imported when they are asked for."""

    table: ClassVar[str]
    """The module: ``PATTERNS``, and ``refused(node)``, which returns why a node is not taken, None if it is."""

    @property
    def patterns(self) -> Sequence[Composite]:
        """The composites in order of preference."""
        rows: Sequence[Composite] = import_module(self.table).PATTERNS
        return rows

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True for a node that is taken by itself, or why it is not."""
        refusal: Any = import_module(self.table).refused(node)
        return True if refusal is None else refusal


def built(plugin: str, library: str, what: str) -> str:
    """Return the path of a plugin's native library; raise PluginError, which says ``what`` is missing, without it."""
    spec = find_spec(f"graft.plugins.{plugin}.{library}")
    if spec is None or spec.origin is None:
        text = f"{what} not built; reinstall graft-compiler with a C compiler present"
        raise PluginError(text, plugin=plugin)
    return spec.origin
