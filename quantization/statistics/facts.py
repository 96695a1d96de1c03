"""Facts: what a recipe needs to know of activations, gathered in one walk through the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import onnx_ir as ir

from graft.core.rewriting.node_rewrite import static_shape
from graft.errors import RecipeError
from graft.quantization.gptq import Gram
from graft.quantization.matrices import channel_axis, is_regular
from graft.quantization.recipe import Recipe, Scaling
from graft.quantization.scales import Scaled
from graft.quantization.sites import Group, Product, Sites, X
from graft.quantization.statistics.histogram import Histogram
from graft.quantization.statistics.observation import Mean, Observer

Gathered = TypeVar("Gathered", bound=Observer)


@dataclass(slots=True)
class Facts:
    """Histograms by the name of the activation, means of input channels and Gram matrices by that of the product.

    ``observers`` are all of them by the name of the activation that they are to see; ``rounded`` are weights that have
    been rounded by them, by name, axis of channels and scaling.
    """

    histograms: dict[str, Histogram] = field(default_factory=dict)
    means: dict[str, Mean] = field(default_factory=dict)
    grams: dict[str, Gram] = field(default_factory=dict)
    observers: dict[str, list[Observer]] = field(default_factory=dict)
    rounded: dict[tuple[str, int, Scaling], Scaled] = field(default_factory=dict)

    def want(self, sites: Sites, recipe: Recipe) -> None:
        """Ask for all that a recipe needs, each once."""
        for group in (*sites.groups, *(group for _, group in sites.caches)):
            for source in group.sources:
                self._add(self.histograms, source.name or "", source, Histogram)
        for product in filter(is_regular, sites.products):
            node, rank, shape = product.node, _rank(product), matrix_shape(product)
            if recipe.correct_bias and rank and shape:  # a stack of matrices has a mean for each
                self._add(self.means, node.name or "", node.inputs[X], partial(Mean, channel_axis(product, rank)))
            if product.scaling is not None and product.scaling.rounding == "gptq" and shape:
                self._add(self.grams, node.name or "", node.inputs[X], partial(Gram, product, shape))

    def _add(self, known: dict[str, Gathered], name: str, value: ir.Value | None, make: Callable[[], Gathered]) -> None:
        if name not in known and value is not None:
            known[name] = make()
            self.observers.setdefault(value.name or "", []).append(known[name])

    def histogram(self, group: Group) -> Histogram:
        """Return the histogram of all activations that share a scale; raise RecipeError for NaN and infinity."""
        whole = Histogram()
        for source in group.sources:
            one = self.histograms[source.name or ""]
            if one.invalid:
                raise RecipeError(
                    f"value '{source.name}' has {one.invalid} elements that are NaN or infinite on the data; mend the "
                    "data, or keep the node that makes it",
                    value=source.name,
                )
            whole.merge(one)
        return whole


def _rank(product: Product) -> int | None:
    x = product.node.inputs[X]
    return None if x is None or x.shape is None else len(x.shape)


def matrix_shape(product: Product) -> tuple[int, ...] | None:
    """Return the shape of weights that are a matrix for each group; None for those of other forms."""
    shape = static_shape(product.weights)
    return shape if shape is not None and (len(shape) == 2 or product.channels == 0) else None
