"""Recipes that backends state: what makes models that they take whole, and what of a model they leave all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graft.compiler.api import plan
from graft.compiler.request import choose, plugins
from graft.core.rewriting.node_rewrite import is_operator
from graft.errors import RecipeError
from graft.plugins.backend import Backend
from graft.plugins.registry.manager import MANAGER, PluginManager
from graft.quantization.recipe import Recipe, changed
from graft.runtime.arguments import TEXT, instance, optional, takes

if TYPE_CHECKING:
    from graft.partition.plan import Placement

BACKEND = instance(str, Backend, wanted="the name of a backend or a graft.Backend")


@takes(backend=BACKEND, name=TEXT, manager=optional(MANAGER))
def recipe_for(backend: str | Backend, name: str = "", *, manager: PluginManager | None = None) -> Recipe:
    """Return a recipe that a backend states, the first without a name; its unwanted passes are those of the recipe.

    Raises RecipeError for a backend that states none, a name that it does not have, and a recipe that is wrong.
    """
    manager = manager or plugins()
    (one,) = choose([backend], manager)
    known = {str(row["name"]): row for row in one.recipes}
    if not known:
        stating = [other.name for plugin in manager.plugins() for other in plugin.backends if other.recipes]
        raise RecipeError(f"backend '{one.name}' states no recipe; {', '.join(stating) or 'no installed backend'} does")
    if name and name not in known:
        raise RecipeError(
            f"backend '{one.name}' states no recipe '{name}'; it has {', '.join(known)}", backend=one.name
        )
    try:
        return changed({"without": sorted(one.unwanted_passes), **known[name or next(iter(known))]})
    except RecipeError as error:
        raise RecipeError(f"backend '{one.name}': {error.message}", plugin=one.name) from error


@takes(
    backend=BACKEND, model=instance(ir.Model, wanted="a model as graft.quantize returns it"), manager=optional(MANAGER)
)
def left_by(backend: str | Backend, model: ir.Model, *, manager: PluginManager | None = None) -> list[Placement]:
    """Return the placements of the operators with quantised inputs that a backend does not get of a model."""
    manager = manager or plugins()
    (one,) = choose([backend], manager)
    others = [name for name in manager.fallbacks() if name != one.name]
    quantised = {node.name for node in model.graph if _reads_codes(node)}
    placements = plan(model, [one, *others], manager=manager).placements
    return [row for row in placements if row.node in quantised and row.backend != one.name]


def _reads_codes(node: ir.Node) -> bool:
    makers = [value.producer() for value in node.inputs if value is not None]
    return any(is_operator(maker, "DequantizeLinear") for maker in makers) and not is_operator(node, "QuantizeLinear")
