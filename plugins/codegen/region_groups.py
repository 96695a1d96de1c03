"""From a region to lowered kernels: layouts, then groups of nodes, then their stages; nothing is scheduled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.target import Target
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.selection.select import rounds
from graft.core.tensor_ir.ir import Buffer, Variable
from graft.partition.region import Region
from graft.plugins.codegen.appends import Refused, candidates, refused, with_pitch
from graft.plugins.codegen.choices import GRAFTS_OWN, CodegenChoices
from graft.plugins.codegen.grouping.fusion import Group, Uses, fuse
from graft.plugins.codegen.grouping.horizontal_fusion import join_horizontally
from graft.plugins.codegen.grouping.lowerings import Lowerings
from graft.plugins.codegen.grouping.region_layout import Layouts, RegionGraph
from graft.plugins.codegen.lowered_groups import Lowered, Values, kernel_name, lowered_beside

PRODUCTS = (Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION)


@dataclass(slots=True)
class RegionGroups:
    """A region's groups in execution order, and the kernels that they become."""

    region: Region
    table: OperatorTable
    target: Target
    choices: CodegenChoices = GRAFTS_OWN
    layouts: Layouts = field(init=False)
    groups: list[Group] = field(init=False)
    places: dict[ir.Value, tuple[ValueView, int]] = field(default_factory=dict)
    """By value: the result of a Concat in whose memory it is computed, and the elements before it."""
    appended: dict[ir.Value, int] = field(init=False)
    """By value: the axis of a Concat whose result is in the memory of what it appends to ..."""
    copied: dict[str, str] = field(default_factory=dict)
    """... and, by the name of a value, why it is not although it might be."""
    _values: Values = field(init=False)
    _uses: Uses = field(init=False)
    _kept: set[ir.Value] = field(init=False)
    """What is stored although nothing in the region may read it."""

    def __post_init__(self) -> None:
        nodes, outputs = self.region.nodes(), {output.value for output in self.region.outputs}
        self._uses = Uses.of(nodes, outputs)
        self.appended = {} if "in-place" in self.target.without else candidates(self.region)
        self._group(nodes, outputs)
        while found := list(self._refused()):
            for one in found:
                del self.appended[one.value]
                self.copied[one.value.name or ""] = one.reason
            self._group(nodes, outputs)

    def _group(self, nodes: Sequence[NodeView], outputs: set[ir.Value]) -> None:
        """Fuse the nodes, with what is appended as it is known by now."""
        target, lowerings = self.target, Lowerings(self.table, pitched=self._pitched)
        strategies = self.choices.table_of_strategies
        self.layouts = layouts = self.choices.layouts(RegionGraph(nodes, outputs, lowerings, target, strategies))
        self.groups = fuse(nodes, outputs, self.table, target.without, layouts, self.choices.fusion, self.appended)
        self.places.clear()
        for placed in (group.placed for group in self.groups if group.placed is not None):
            self.places.update((value, (placed.node.outputs[0], offset)) for value, offset in placed.computed)
        if "horizontal" not in target.without:
            self.groups = join_horizontally(self.groups, target, {*outputs, *layouts, *self.places})
        self._values = Values(lowerings, layouts, are_bfloat16=target.precision == "bf16")
        self._kept = outputs | self.places.keys()

    def _pitched(self, value: ir.Value, buffer: Buffer) -> Buffer:
        return with_pitch(buffer, self.appended[value]) if value in self.appended else buffer

    def _refused(self) -> Iterator[Refused]:
        """Yield those appended values that something in the region cannot read where they are."""

        def scheduled(kernel: Kernel) -> Scheduled:
            return self.choices.schedule(kernel, self.target, None)

        return refused(self.appended, self.groups, self._uses.readers, self.kernels, scheduled)

    @property
    def extents(self) -> Mapping[str, Variable]:
        """The variables of extents that are known only when a program runs, by what they are."""
        return self._values.lowerings.extents

    def stored(self, group: Group) -> list[ir.Value]:
        """Return the values that a group stores for others."""
        readers, kept = self._uses.readers, self._kept
        return [value for value in group.tail.node.outputs if group.parts or value in readers or value in kept]

    def is_empty(self, group: Group) -> bool:
        """Whether a group computes tensors without elements."""
        return all(0 in (ValueView(value).static_shape or ()) for value in self.stored(group))

    def kernels(self, number: int) -> Sequence[Lowered]:
        """Return the group of a number lowered: with those beside it to one kernel, or to one each if they cannot."""
        region, group = self.region.name, self.groups[number]
        if not group.beside:
            return [self._values.lower_group(group, kernel_name(region, number, group), self.stored(group))]
        groups = (group, *group.beside)
        parts = [
            self._values.lower_group(one, kernel_name(f"{region}_{number}", place, one), self.stored(one))
            for place, one in enumerate(groups)
        ]
        nodes = [node for one in groups for node in one.nodes]
        own = {node.node for node in nodes}
        made = {value for part in parts for value in part.outputs if value not in self._kept}
        inner = {value for value in made if own.issuperset(reader.node for reader in self._uses.readers[value])}
        whole = lowered_beside(parts, kernel_name(region, number, Group(nodes, group.trait)), self.target, inner)
        return parts if whole is None else [whole]

    def every_kernel(self) -> Iterator[Lowered]:
        """Yield the kernels of all groups that compute something."""
        for number in self.computed():
            yield from self.kernels(number)

    def computed(self) -> Iterator[int]:
        """Yield the numbers of the groups that compute something."""
        for number, group in enumerate(self.groups):
            if not group.is_view and group.appends is None and not self.is_empty(group):
                yield number

    def rounded(self) -> set[str]:
        """Return the names of the nodes whose float32 factors are rounded to bfloat16, as the strategies say."""
        strategies = self.choices.table_of_strategies
        has = self.table.has
        products = {node.name for node in self.region.nodes() if any(has(node, trait) for trait in PRODUCTS)}
        found = (one.kernel for one in self.every_kernel() if rounds(one.kernel, self.target, strategies))
        return {name for kernel in found for name in kernel.origin} & products
