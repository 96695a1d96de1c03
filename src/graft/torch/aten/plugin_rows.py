"""Rows of plugins: operators of PyTorch's that a plugin writes as ONNX, by the hook ``graft_torch_operators``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload

from graft.compiler.request import plugins
from graft.errors import PluginError
from graft.runtime.foreign import shown
from graft.torch.aten.quantized import ROWS_BY_NAME
from graft.torch.aten.table import ROWS


def row_of(target: Any) -> Callable[..., Any] | None:
    """Return the row of an operator, Graft's before a plugin's; None where nobody has one.

    Raises PluginError for a hook that raises, or gives anything but pairs, and for two plugins with one operator.
    """
    if target in ROWS or not isinstance(target, OpOverload):
        return ROWS.get(target)
    return ROWS_BY_NAME.get(target.name()) or rows_of_plugins().get(target.name())


def rows_of_plugins() -> dict[str, Callable[..., Any]]:
    """Return the rows of all plugins by the operators' names, such as ``acme::gate`` or ``acme::gate.out``.

    Raises PluginError as `row_of` does.
    """
    found: dict[str, tuple[str, Callable[..., Any]]] = {}
    for plugin, pairs in plugins().call("graft_torch_operators"):
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2 or "::" not in str(pair[0]) or not callable(pair[1]):
                raise PluginError(
                    f"plugin '{plugin}': graft_torch_operators gave {shown(pair)}; "
                    "give pairs of a name, as in 'acme::gate', and a function",
                    plugin=plugin,
                )
            name, row = pair
            owner, _ = found.setdefault(name, (plugin, row))
            if owner != plugin:
                raise PluginError(f"plugin '{plugin}': plugin '{owner}' has a row of '{name}', too", plugin=plugin)
    return {name: row for name, (_, row) in found.items()}
