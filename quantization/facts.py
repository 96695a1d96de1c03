"""Facts: what a recipe needs to know of activations, gathered in one walk through the data."""

from __future__ import annotations

from dataclasses import dataclass, field

from graft.core.rewriting.node_rewrite import static_shape
from graft.errors import RecipeError
from graft.quantization.gptq import Gram
from graft.quantization.histogram import Histogram
from graft.quantization.matrices import channel_axis, is_regular
from graft.quantization.observation import Mean, Observer
from graft.quantization.recipe import Recipe
from graft.quantization.sites import Group, Product, Sites, X


@dataclass(slots=True)
class Facts:
    """Histograms by the name of the activation, means of input channels and Gram matrices by that of the product."""

    histograms: dict[str, Histogram] = field(default_factory=dict)
    means: dict[str, Mean] = field(default_factory=dict)
    grams: dict[str, Gram] = field(default_factory=dict)

    @classmethod
    def wanted(cls, sites: Sites, recipe: Recipe) -> Facts:
        """Return empty facts of all that a recipe needs."""
        facts = cls({source.name or "": Histogram() for group in sites.groups for source in group.sources})
        regular = [product for product in sites.products if is_regular(product)]
        if recipe.correct_bias:
            facts.means = {
                one.node.name or "": Mean(channel_axis(one, rank)) for one in regular if (rank := _rank(one))
            }
        if recipe.weights is not None and recipe.weights.rounding == "gptq":
            facts.grams = {one.node.name or "": Gram(one, shape) for one in regular if (shape := matrix_shape(one))}
        return facts

    def observers(self, sites: Sites) -> dict[str, list[Observer]]:
        """Return what is to see each activation, by its name."""
        found: dict[str, list[Observer]] = {name: [one] for name, one in self.histograms.items()}
        for product in sites.products:
            x = product.node.inputs[X]
            for gathered in (self.means, self.grams):
                one = gathered.get(product.node.name or "")
                if one is not None and x is not None:
                    found.setdefault(x.name or "", []).append(one)
        return found

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
