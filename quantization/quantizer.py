"""A float model with data: measured once, then written by any recipe that needs no more than was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graft.core.operators.definition.table import Trait
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.core.passes.pipeline import RECORD, verify_model
from graft.core.rewriting.node_rewrite import has_trait
from graft.datatypes.scaled.conversion import convert_scaled, is_depthwise
from graft.datatypes.scaled.products import FLOAT32
from graft.datatypes.scaled.scaled_type import ScaledType, scaled_name
from graft.errors import RecipeError
from graft.quantization.accumulators import Sums, accumulated
from graft.quantization.awq import favour_large_inputs
from graft.quantization.caches import with_inputs_of
from graft.quantization.calibration import calibrated
from graft.quantization.comparison import compare
from graft.quantization.equalize import equalize, smooth
from graft.quantization.grids import GRIDS
from graft.quantization.metrics import Metric, score
from graft.quantization.preparation import MOVED, NOTES
from graft.quantization.recipe import Recipe
from graft.quantization.rewriting import Point, QdqWriter, bits_of_weights
from graft.quantization.scales import Scaled
from graft.quantization.search import literal
from graft.quantization.sites import Group, Product, Sites, chosen, matches, product_of, recipe_of_node, sites_of
from graft.quantization.sizes import FLOAT_BITS, Size, bits_in_blocks, size_of
from graft.quantization.statistics.data import Batches, Given
from graft.quantization.statistics.facts import Facts
from graft.quantization.statistics.observation import Progress, Running
from graft.quantization.weights import bias_shift, key_of, require_finite_weights, scaled_weights, short_blocks


@dataclass(slots=True)
class Quantizer:
    """What is known of a float model: by data, how it is run, and what it is worth by a metric.

    ``floats`` has factors moved between its layers as the recipe that it was measured for says.
    """

    original: ir.Model
    data: Given | None
    metric: Metric | None
    running: Running
    floats: ir.Model
    facts: Facts

    @classmethod
    def measured(
        cls, original: ir.Model, recipes: Sequence[Recipe], data: Given | None, metric: Metric | None,
        running: Running, progress: Progress | None = None,
    ) -> Quantizer:  # fmt: skip
        """Return what recipes need to know of a model; raise RecipeError for one that quantises nothing of it.

        Factors move by the first recipe.
        """
        floats, facts, batches = original.clone(), Facts(), Batches(data, original)
        recipe = recipes[0]
        moved = equalize(floats) if recipe.equalize else []
        if recipe.smooth:
            moved += smooth(floats, recipe.smooth, batches, running)
        if recipe.awq:
            moved += favour_large_inputs(floats, recipe, batches, running)
        for one in recipes:
            sites = sites_of(floats, one)
            in_blocks = one.blocks or any(layer.blocks for _, layer in one.layers)
            if not (sites.products or sites.groups or sites.caches or in_blocks):
                raise RecipeError(f"recipe '{one.name}' quantises nothing of this model: {_why_nothing(floats)}")
            facts.want(sites, one)
        if facts.observers:
            running.observe(floats, facts.observers, batches, progress)
        if moved:
            floats.metadata_props[MOVED] = "\n".join(dict.fromkeys(moved))
        return cls(original, data, metric, running, floats, facts)

    def written(self, recipe: Recipe) -> ir.Model:
        """Return the model quantised by a recipe."""
        model, rest = self._in_blocks(recipe)
        if rest is None:
            return model
        sites = sites_of(model, rest)
        writer, summed = QdqWriter(model), list(accumulated(model, rest))
        writer.notes += model.metadata_props.get(NOTES, "").splitlines()
        weights = scaled_weights(sites, self.facts, writer.notes)
        coded = {one.node: weights[key_of(one)] for one in sites.products}
        for group in sites.groups:
            writer.activations(group, self._point(group), results=rest.results)
        for cache, group in sites.caches:
            writer.cache(cache, self._point(group))
        for product in sites.products:
            one, means = weights[key_of(product)], self.facts.means.get(product.node.name or "")
            if means is not None and rest.correct_bias:
                writer.shift_bias(product, bias_shift(product, one, means.means))
            writer.bias(product, one, added=rest.results)
            writer.weights(product, one)
        sums = Sums(model, writer.points)
        for node, dtype in summed:
            sums.add(node, dtype, coded.get(node))
        sums.finish()
        writer.notes += sums.notes
        EliminateDeadCode().run(model)
        verify_model(model, "quantize")
        notes = (_summary(recipe, sites, list(weights.values())), *writer.all_notes())
        model.metadata_props[NOTES] = "\n".join(notes)
        model.meta.pop(RECORD, None)  # it is as it would be in a file: 4-bit constants are widened when it is loaded
        return model

    def _in_blocks(self, recipe: Recipe) -> tuple[ir.Model, Recipe | None]:
        """Return the model with the products that a recipe has in blocks, and the recipe of all others, if any."""
        taken, model, notes, ends = list(chosen(self.floats, recipe)), self.floats.clone(), list[str](), list[str]()
        products = [node for node in self.floats.graph if product_of(node) is not None]
        by_type: dict[tuple[ScaledType, str], list[ir.Node]] = {}
        if recipe.blocks and not recipe.layers:
            by_type[recipe.scaled_type, recipe.accumulators] = []  # which is refused where nothing is taken
        for node in taken:
            own = recipe_of_node(node, recipe)
            if own.blocks and node in products:
                by_type.setdefault((own.scaled_type, own.accumulators), []).append(node)
        for (type, sums), nodes in by_type.items():
            require_finite_weights(nodes)
            kept = [literal(node.name or "") for node in products if node not in nodes]
            named = bool(recipe.layers)  # a depthwise convolution, too, if a layer has it
            model = convert_scaled(model, type, keep=kept, depthwise=named, accumulate=sums or FLOAT32)
            count = f"{len(nodes)} " if named else ""
            said = f", sums in {sums}" if sums else ""
            notes.append(f"{count}products in blocks of {scaled_name(type)}, {type.bits:g} bits a number{said}")
            if short := short_blocks(nodes, type.block):
                ends.append(f"weights whose last block is short: {', '.join(short)}")
        # What is no product stays in floats.
        in_blocks = [node for node in taken if recipe_of_node(node, recipe).blocks]
        others = [node for node in taken if node not in in_blocks]
        if not by_type:
            return model, recipe
        if not others:
            model.metadata_props[NOTES] = "\n".join((f"recipe '{recipe.name}': {', '.join(notes)}", *ends))
            return model, None
        model.metadata_props[NOTES] = "\n".join((*notes, *ends))
        fitting = {pattern for pattern in (*recipe.nodes, *dict(recipe.layers)) if any(
            matches(node, (pattern,)) for node in others
        )}  # fmt: skip
        return model, replace(
            recipe,
            blocks="",
            nodes=tuple(one for one in recipe.nodes if one in fitting),
            keep=(*recipe.keep, *(literal(node.name or "") for node in in_blocks)),
            layers=tuple((pattern, one) for pattern, one in recipe.layers if pattern in fitting and not one.blocks),
        )

    def _point(self, group: Group) -> Point:
        grid = GRIDS[group.scaling.type]
        return Point(grid, *calibrated(self.facts.histogram(group), group.scaling, grid))

    def size_of(self, recipe: Recipe) -> Size:
        """Return the size of the model by a recipe that it has been written by."""

        def bits(product: Product) -> tuple[float, float]:
            one, activation = known.get(product.node.name), readers.get(product.node)
            rounded = None if one is None else self.facts.rounded[key_of(one)]
            weight = FLOAT_BITS if rounded is None else rounded.stored_bits / rounded.codes.size
            if product.node in taken and _is_in_blocks(product.node, recipe):
                type = recipe_of_node(product.node, recipe).scaled_type
                return bits_in_blocks(product, type), type.bits
            return weight, FLOAT_BITS if activation is None else GRIDS[activation.type].bits

        sites, taken = sites_of(self.floats, recipe), set(chosen(self.floats, recipe))
        known = {one.node.name: one for one in sites.products}
        readers = {node: group.scaling for group in sites.groups for uses in group.readers.values() for node, _ in uses}
        return size_of(self.floats, bits)

    def formats_of(self, recipe: Recipe) -> Callable[[Product], tuple[str, str, str]]:
        """Return what gives the formats of the weights and activations of a product by a recipe, and that of its sums.

        The latter is "" where the product sums in what its operator does.
        """
        sites = sites_of(self.floats, recipe)
        weights = {one.node.name: one.scaling.type for one in sites.products if one.scaling is not None}
        activations = {
            node.name: group.scaling.type
            for group in sites.groups
            for uses in group.readers.values()
            for node, _ in uses
        }
        own = {node.name: recipe_of_node(node, recipe) for node in chosen(self.floats, recipe)}

        def formats(product: Product) -> tuple[str, str, str]:
            name = product.node.name
            one = own.get(name)
            if one is not None and _is_in_blocks(product.node, recipe):
                return one.scaled_type.element, one.scaled_type.element, one.accumulators
            both = weights.get(name, "float32"), activations.get(name, "float32")
            return (*both, "" if one is None or both == ("float32", "float32") else one.accumulators)

        return formats

    def metric_of(self, model: ir.Model) -> float:
        """Return what a model is worth on the data; raise RecipeError without labels and without a metric."""
        names = [value.name or "" for value in model.graph.outputs]
        runner = self.running.runner(with_inputs_of(model, self.original))
        found = score(runner, names, Batches(self.data, self.original), self.metric)
        if found is None:
            raise RecipeError("a bound on the metric needs labels in the data, or a metric")
        return found

    def worst_layers(self, model: ir.Model) -> list[str]:
        """Return the names of a quantised model's layers, the one of the largest error first."""
        running = self.running
        rows = compare(self.original, model, self.data, threads=running.threads, manager=running.manager).layers
        return [row.layer for row in sorted(rows, key=lambda row: row.snr_db)]


def _is_in_blocks(product: ir.Node, recipe: Recipe) -> bool:
    """Whether a product is computed in blocks: of depthwise ones those that have a layer of the recipe."""
    return bool(recipe_of_node(product, recipe).blocks) and (bool(recipe.layers) or not is_depthwise(product))


def _why_nothing(model: ir.Model) -> str:
    """Return why no node of a model is quantised: by the first product that might have been expected to be."""
    for node in model.graph:
        kind = node.outputs[0].dtype
        if not has_trait(node, Trait.CONTRACTION) and not has_trait(node, Trait.CONVOLUTION):
            continue
        where = f"{node.op_type} (node '{node.name}')"
        if kind is not None and kind is not ir.DataType.FLOAT:
            return f"{where} computes in {kind.name.lower()}, and recipes take float32"
        return f"{where} is not taken by it; weights are the right side of MatMul or Gemm, or those of a convolution"
    return "no node takes what it scales"


def _summary(recipe: Recipe, sites: Sites, weights: list[Scaled]) -> str:
    """Return what was done, in a line."""
    parts = [f"recipe '{recipe.name}': {len(sites.groups)} scales of activations, {len(sites.products)} products"]
    parts += [f"{len(sites.caches)} caches of {recipe.caches.type}"] if recipe.caches is not None else []
    parts += [f"{bits_of_weights(weights):.2f} bits a weight"] if weights else []
    parts += [f"sums in {recipe.accumulators}"] if recipe.accumulators else []
    parts += [f"in floats: {', '.join(recipe.keep)}"] if recipe.keep else []
    return ", ".join(parts)
