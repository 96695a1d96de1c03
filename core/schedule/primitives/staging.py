"""Primitives that keep part of a buffer near: cache_read, cache_write, compute_at."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from graft.core.affine.linear import Linear
from graft.core.schedule.primitives.bounds import at_least_zero, mask_of
from graft.core.schedule.primitives.coverage import covers
from graft.core.schedule.primitives.dependence import accesses, conflicts
from graft.core.schedule.primitives.step import (
    Step,
    all_reach,
    around,
    bounded,
    combine,
    constant_extent,
    delinearize,
    find,
    find_place,
    fresh,
    index,
    with_body,
    with_loop,
)
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import loops_over


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a buffer that a statement touches: where it begins in each dimension, and how long it is."""

    buffer: ir.Buffer
    begin: tuple[ir.Expression, ...]
    size: tuple[int, ...]

    def place(self, offsets: Sequence[ir.Expression]) -> tuple[ir.Expression, ...]:
        """Return the indices of an element of the region in the buffer."""
        return tuple(combine("add", begin, offset) for begin, offset in zip(self.begin, offsets, strict=True))

    def inside(
        self, offsets: Sequence[ir.Expression], simplifier: Simplifier, loops: Iterable[ir.For] = ()
    ) -> ir.Expression | None:
        """Return the condition that an element lies in the buffer, None if each does; ``loops`` are around it."""
        condition: ir.Expression | None = None
        extents = {loop.variable: simplifier(loop.extent) for loop in loops}
        for place, extent in zip(self.place(offsets), self.buffer.shape, strict=True):
            known_place = simplifier(place)
            if isinstance(known_place, ir.Variable) and extents.get(known_place) == simplifier(extent):
                continue
            bounds = simplifier.interval(known_place)
            below, above = ir.Binary("ge", place, index(0)), ir.Binary("lt", place, extent)
            least = bounds is not None and bounds[0] >= 0
            most = bounds is not None and isinstance(extent, ir.Constant) and bounds[1] < extent.value
            for known, one in ((least, below), (most, above)):
                if not known:
                    condition = one if condition is None else ir.Binary("and", condition, one)
        return condition

    def cache(self, name: str, memory: str) -> ir.Buffer:
        """Return a buffer for the region."""
        return ir.Buffer(name, self.buffer.dtype, tuple(map(index, self.size)), None, memory, self.buffer.alignment)


def region_of(
    step: Step, body: ir.Statement, buffer: ir.Buffer, simplifier: Simplifier, moving: Collection[ir.Variable] = ()
) -> Region:
    """Return the region of a buffer that a statement touches while the loops around it, but ``moving``, stand still."""
    inner = {one.variable for one in visit.walk_statements(body) if isinstance(one, ir.For | ir.Let)} | set(moving)
    changing = {one.buffer for one in visit.walk_statements(body) if isinstance(one, ir.Store | ir.Allocate)}
    used = [one for one in accesses(body) if one.buffer is buffer]
    if not used:
        step.fail(f"'{buffer.name}' is not used there")
    touched, reached = [one.indices for one in used], list(_reached(body))
    for one in used:
        if visit.loads(*(one.indices or ())) and not any(one.statement is certain for certain in reached):
            step.fail(f"the places in '{buffer.name}' are told by data, and only under a condition")
    begins, sizes = [], []
    for dimension in range(len(buffer.shape)):
        base: Linear[int] | None = None
        low = high = 0
        for indices in touched:
            form = simplifier.form(simplifier(indices[dimension])) if indices is not None else Linear(lanes=0)
            still, least, most = _parted(step, form, (inner, changing), simplifier, buffer)
            difference = Linear() if base is None else still.plus(base, -1)
            if base is None:
                base, low, high = replace(still, constant=0), least + still.constant, most + still.constant
            elif difference.terms:
                step.fail(f"the places in '{buffer.name}' that are used have no fixed distance")
            else:
                low = min(low, difference.constant + least)
                high = max(high, difference.constant + most)
        assert base is not None, buffer.name
        whole = simplifier(buffer.shape[dimension])
        is_told = not any(visit.loads(indices[dimension]) for indices in touched if indices is not None)
        if not is_told and isinstance(whole, ir.Constant) and high - low >= whole.value > 0:
            base, low, high = Linear(), 0, int(whole.value) - 1  # what data say leads nowhere else
        begins.append(simplifier.build(base.plus(Linear(low))))
        sizes.append(high - low + 1)
    return Region(buffer, tuple(begins), tuple(sizes))


def _reached(body: ir.Statement) -> Iterator[ir.Statement]:
    """Yield the statements that run whenever a statement does."""
    yield body
    is_empty = isinstance(body, ir.For) and not (isinstance(body.extent, ir.Constant) and body.extent.value > 0)
    if not isinstance(body, ir.If) and not is_empty:
        for inner in visit.statement_children(body):
            yield from _reached(inner)


def _parted(
    step: Step,
    form: Linear[int],
    inside: tuple[Collection[ir.Variable], Collection[ir.Buffer]],
    simplifier: Simplifier,
    buffer: ir.Buffer,
) -> tuple[Linear[int], int, int]:
    """Return the part of an index that stands still, and the bounds of the rest.

    ``inside`` are the variables, and the buffers whose contents, the rest is made of.
    """
    inner, changing = inside
    atoms = {number: simplifier.atom(number) for number in form.terms}
    still = {
        number: form.terms[number]
        for number, atom in atoms.items()
        if visit.free_variables(atom).isdisjoint(inner) and all(one.buffer not in changing for one in visit.loads(atom))
    }
    moving = {number: factor for number, factor in form.terms.items() if number not in still}
    bounds = simplifier.interval(simplifier.build(Linear(0, moving))) if moving else (0, 0)
    if bounds is None or form.lanes != 1:
        step.fail(f"the places in '{buffer.name}' that are used have no bounds")
    return Linear(form.constant, still), *bounds


def redirected(body: ir.Statement, region: Region, cache: ir.Buffer, simplifier: Simplifier) -> ir.Statement:
    """Return a statement that uses a cache where it used the region of the buffer."""

    def own(_: ir.Buffer, indices: tuple[ir.Expression, ...]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
        pairs = zip(indices, region.begin, strict=True)
        return cache, tuple(simplifier(combine("sub", place, begin)) for place, begin in pairs)

    return visit.map_accesses(body, {region.buffer}, own)


def copied(names: str, region: Region, cache: ir.Buffer, simplifier: Simplifier, back: bool = False) -> ir.Statement:
    """Return the loops that fill a cache from its region, or write it ``back``."""
    offsets = [ir.Variable(f"{names}.{number}") for number in range(len(region.size))]
    for offset, size in zip(offsets, region.size, strict=True):
        simplifier.with_range(offset, (0, size - 1))
    return loops_over(zip(offsets, cache.shape, strict=True), _copy(region, cache, offsets, simplifier, back))


def _copy(
    region: Region, cache: ir.Buffer, offsets: Sequence[ir.Expression], simplifier: Simplifier, back: bool
) -> ir.Statement:
    inside = region.inside(offsets, simplifier)
    if not back:
        return ir.Store(cache, tuple(offsets), ir.Load(region.buffer, region.place(offsets), inside))
    written = ir.Store(region.buffer, region.place(offsets), ir.Load(cache, tuple(offsets)))
    return written if inside is None else ir.If(inside, written)


def buffer_named(step: Step, function: ir.Function, name: str) -> ir.Buffer:
    """Return the buffer of a name."""
    own = [one.buffer for one in visit.walk_statements(function.body) if isinstance(one, ir.Allocate)]
    known = [buffer for buffer in (*function.parameters, *own) if buffer.name == name]
    if len(known) != 1:
        names = ", ".join(buffer.name for buffer in (*function.parameters, *own))
        step.fail(f"{len(known) or 'no'} buffers are called '{name}'; there are {names}")
    return known[0]


def check_shared(step: Step, body: ir.Statement, loop: ir.For, buffer: ir.Buffer, what: str) -> None:
    """Check that a copy, which may be of more than is used, touches nothing that a parallel iteration writes."""
    for one in around(body, loop.variable):
        if isinstance(one, ir.For) and one.kind == "parallel" and _writes(one, buffer):
            met = conflicts(one.body, [one], bounded(body))
            if any(each.first.buffer is buffer and each.distance[one.variable] != 0 for each in met):
                step.fail(f"iterations of '{one.variable.name}' would {what}")


@dataclass(frozen=True, slots=True)
class CacheRead(Step):
    """Copies what one iteration of a loop reads of a buffer into another memory first.

    ``units`` are bound loops around it whose iterations fill the cache together, between barriers, and share it.
    """

    form = "cache_read {buffer} at {loop} in {memory} -> {cache} by {units}"
    buffer: str
    loop: str
    memory: str
    cache: str
    units: tuple[str, ...] = ()

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a copy in front of the loop's body."""
        loop, buffer = find_place(self, function.body, self.loop), buffer_named(self, function, self.buffer)
        if any(one.writes for one in accesses(loop.body) if one.buffer is buffer):
            self.fail(f"'{self.buffer}' is written inside of '{self.loop}'")
        units = [find(self, function.body, unit) for unit in self.units]
        simplifier = bounded(function.body)
        region = region_of(self, loop.body, buffer, simplifier, {unit.variable for unit in units})
        cache = region.cache(self.cache, self.memory)
        used = redirected(loop.body, region, cache, simplifier)
        if not units:
            new: ir.Statement = ir.Allocate(cache, ir.Block((copied(self.cache, region, cache, simplifier), used)))
            changed = with_loop(function.body, loop.variable, lambda one: replace(one, body=new))
            check_shared(self, changed, loop, buffer, "copy what others write")
            return with_body(function, changed)
        barrier, outermost = self._meeting(function, loop, units)
        together = self._together(function, region, cache, units, simplifier)
        met = isinstance(used, ir.Block) and used.statements.count(barrier) > 1
        own = used.statements if met and isinstance(used, ir.Block) else (barrier, used, barrier)
        changed = with_loop(function.body, loop.variable, lambda one: replace(one, body=ir.Block((together, *own))))
        check_shared(self, changed, loop, buffer, "copy what others write")
        return with_body(function, with_loop(changed, outermost.variable, lambda one: ir.Allocate(cache, one)))

    def _meeting(self, function: ir.Function, loop: ir.For, units: list[ir.For]) -> tuple[ir.Barrier, ir.For]:
        """Return the barrier of the units, and the outermost of them."""
        path = [one for one in around(function.body, loop.variable) if isinstance(one, ir.For)]
        bound = [one for one in path if one.binding]
        if loop.binding:
            self.fail(f"'{self.loop}' is bound itself, so that its units do not stand together around it")
        for one in path[path.index(bound[0]) :] if bound else ():
            if one.kind == "parallel" and not one.binding:
                self.fail(f"iterations of '{one.variable.name}' are at the same time, so that units cannot wait in it")
        if any(unit not in bound for unit in units) or not all_reach(function.body, loop, units):
            self.fail(f"'{self.units[0]}' and its like must be bound loops around '{self.loop}', which all reach")
        first = min(bound.index(unit) for unit in units)
        is_all = set(map(id, bound[first:])) == set(map(id, units))
        if not is_all or not first or ir.level_of(bound[first - 1].binding) == ir.level_of(bound[first].binding):
            self.fail("the units are not all that one unit of the level around them has")
        return ir.Barrier(ir.level_of(bound[first - 1].binding)), bound[first]

    def _together(
        self, function: ir.Function, region: Region, cache: ir.Buffer, units: list[ir.For], simplifier: Simplifier
    ) -> ir.Statement:
        """Return the copy of a region by several units, each taking every n-th element."""
        (turn,) = fresh(self, function.body, f"{self.cache}.turn")
        number: ir.Expression = index(0)
        for unit in units:
            number = combine("add", combine("mul", number, constant_extent(self, unit)), unit.variable)
        many, total = prod(constant_extent(self, unit) for unit in units), prod(region.size)
        simplifier.with_range(turn, (0, -(-total // many) - 1))
        element = combine("add", combine("mul", turn, index(many)), number)
        offsets = delinearize(element, region.size[1:])
        body = _copy(region, cache, offsets, simplifier, False)
        if total % many:
            body = ir.If(ir.Binary("lt", element, index(total)), body)
        return ir.For(turn, index(-(-total // many)), "serial", body)


@dataclass(frozen=True, slots=True)
class CacheWrite(Step):
    """Lets one iteration of a loop work on a copy of what it writes of a buffer, which is written back at its end."""

    form = "cache_write {buffer} at {loop} in {memory} -> {cache}"
    buffer: str
    loop: str
    memory: str
    cache: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with copies around the loop's body."""
        loop, buffer = find_place(self, function.body, self.loop), buffer_named(self, function, self.buffer)
        used = [one for one in accesses(loop.body) if one.buffer is buffer]
        if not any(one.writes for one in used):
            self.fail(f"'{self.buffer}' is not written inside of '{self.loop}'")
        simplifier = bounded(function.body)
        region = region_of(self, loop.body, buffer, simplifier)
        cache = region.cache(self.cache, self.memory)
        parts = [
            redirected(loop.body, region, cache, simplifier),
            copied(f"{self.cache}.out", region, cache, simplifier, back=True),
        ]
        if not self._is_set(loop.body, region, simplifier):
            parts.insert(0, copied(f"{self.cache}.in", region, cache, simplifier))
        new = ir.Allocate(cache, ir.Block(tuple(parts)))
        changed = with_loop(function.body, loop.variable, lambda one: replace(one, body=new))
        check_shared(self, changed, loop, buffer, "write back what others write")
        return with_body(function, changed)

    def _is_set(self, body: ir.Statement, region: Region, simplifier: Simplifier) -> bool:
        """Whether a body begins with a nest that sets every element of the region."""
        first = inner = body.statements[0] if isinstance(body, ir.Block) and body.statements else body
        own: dict[ir.Variable, ir.Expression] = {}
        while isinstance(inner, ir.For):
            own[inner.variable] = simplifier(inner.extent)
            inner = inner.body
        if not all(isinstance(extent, ir.Constant) and extent.value > 0 for extent in own.values()):
            return False  # of a loop whose extent changes, not all iterations come to the bounds
        if not isinstance(inner, ir.Store) or inner.buffer is not region.buffer or inner.mask is not None:
            return False
        steps: list[tuple[ir.Expression, int]] = []  # one loop for each dimension, in steps of one
        for place in inner.indices:
            terms = simplifier.form(simplifier(place)).terms.items()
            moving = [
                (simplifier.atom(n), f)
                for n, f in terms
                if not visit.free_variables(simplifier.atom(n)).isdisjoint(own)
            ]
            if len(moving) > 1 or any(step not in [(variable, 1) for variable in own] for step in moving):
                return False
            steps += moving
        reads = [one for one in accesses(first) if one.buffer is region.buffer and not one.writes]
        whole = len(set(steps)) == len(steps) and region_of(self, first, region.buffer, simplifier) == region
        return whole and not reads


@dataclass(frozen=True, slots=True)
class ComputeAt(Step):
    """Moves the nests that compute a buffer into a loop that uses it: each iteration computes what it needs.

    If the loop goes on to write the buffer, as a reduction does, no two iterations may share an element. Otherwise the
    buffer shrinks to what one iteration reads, and elements that several read are computed again.
    """

    form = "compute_at {buffer} at {loop}"
    buffer: str
    loop: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with the nests inside of the loop."""
        loop, buffer = find_place(self, function.body, self.loop), buffer_named(self, function, self.buffer)
        path, position, makers = self._makers(function, loop, buffer)
        block = path[position]
        assert isinstance(block, ir.Block), block
        is_updated = any(one.writes for one in accesses(loop.body) if one.buffer is buffer)
        is_needed = self._check(function, path, position, makers, buffer, is_updated)
        simplifier = bounded(function.body)
        region = region_of(self, loop.body, buffer, simplifier)
        loops = [one for one in around(function.body, loop.variable) if isinstance(one, ir.For)]
        nests = [self._moved(maker, region, simplifier, is_updated, loops) for maker in makers]
        new: ir.Statement = ir.Block((*nests, loop.body))
        if not is_updated:
            cache = region.cache(buffer.name, buffer.memory)
            new = ir.Allocate(cache, redirected(new, region, cache, simplifier))
        old = path[position + 1]
        nest = with_loop(old, loop.variable, lambda one: replace(one, body=new))
        if is_updated:
            self._check_own(around(nest, loop.variable), region, simplifier, is_needed)
        kept = [nest if one is old else one for one in block.statements if not any(one is maker for maker in makers)]
        rebuilt: ir.Statement = ir.Block(tuple(kept)) if len(kept) > 1 else kept[0]
        for outer, inner in reversed(list(pairwise(path[: position + 1]))):
            if isinstance(outer, ir.Allocate) and outer.buffer is buffer and not is_updated:
                continue
            rebuilt = _with_inner(outer, inner, rebuilt)
        return with_body(function, rebuilt)

    def _makers(
        self, function: ir.Function, loop: ir.For, buffer: ir.Buffer
    ) -> tuple[list[ir.Statement], int, list[ir.Statement]]:
        """Return the way down to the loop, where the nests that write the buffer stand beside it, and these."""
        path = around(function.body, loop.variable)
        blocks = [number for number, one in enumerate(path) if isinstance(one, ir.Block)]
        if not blocks:
            self.fail(f"nothing stands before the nest of '{self.loop}'")
        for position in reversed(blocks):
            block, below = path[position], path[position + 1]
            assert isinstance(block, ir.Block), block
            here = next(number for number, one in enumerate(block.statements) if one is below)
            makers = [one for one in block.statements[:here] if _writes(one, buffer)]
            if makers:
                break
        is_between = any(number > position for number in blocks)
        if not makers or _uses(below, buffer) != _uses(loop.body, buffer) or (is_between and _writes(below, buffer)):
            self.fail(
                f"no nest before that of '{self.loop}' computes '{self.buffer}', or more than loops stand between"
            )
        return path, position, makers

    def _check(
        self,
        function: ir.Function,
        path: list[ir.Statement],
        position: int,
        makers: list[ir.Statement],
        buffer: ir.Buffer,
        is_updated: bool,
    ) -> bool:
        """Check that what the buffer is made of stays as it is; return whether it is used behind the loops."""
        block, below = path[position], path[position + 1]
        assert isinstance(block, ir.Block), block
        first, here = (number for number, one in enumerate(block.statements) if one is makers[0] or one is below)
        read = {one.buffer for maker in makers for one in accesses(maker) if one.buffer is not buffer}
        between = [one for one in block.statements[first:here] if not _writes(one, buffer)]
        for one in (*between, below):
            waits = any(isinstance(part, ir.Barrier) for part in visit.walk_statements(one))
            if waits or any(other.writes and other.buffer in read for other in accesses(one)):
                self.fail(f"what '{self.buffer}' is made of is written before '{self.loop}' is done")
        home = next((n for n, one in enumerate(path) if isinstance(one, ir.Allocate) and one.buffer is buffer), -1)
        repeated = [one for one in path[home + 1 : position] if isinstance(one, ir.For)]
        if repeated:
            self.fail(f"'{self.buffer}' is kept from one iteration of '{repeated[-1].variable.name}' to the next")
        scope = function.body if home < 0 else path[home + 1]
        elsewhere = _uses(scope, buffer) - sum(_uses(one, buffer) for one in (*makers, below))
        is_needed = buffer in function.parameters or elsewhere > 0
        if (is_needed and not is_updated) or any(_uses(one, buffer) for one in between):
            self.fail(f"'{self.buffer}' is needed as a whole elsewhere")
        return is_needed

    def _check_own(self, path: list[ir.Statement], region: Region, simplifier: Simplifier, is_needed: bool) -> None:
        """Check that no two iterations of the loops down to the place touch one element, and that none is left out."""
        chain = [one for one in path if isinstance(one, ir.For)]
        for conflict in conflicts(chain[0].body, chain, simplifier):
            apart = [name.name for name, distance in conflict.distance.items() if distance != 0]
            if conflict.first.buffer is region.buffer and apart:
                self.fail(f"iterations of '{apart[0]}' share elements of '{self.buffer}'")
        if is_needed and not covers(path, region.begin, region.size, region.buffer.shape, simplifier):
            self.fail(f"iterations of '{self.loop}' may leave out elements of '{self.buffer}'")

    def _moved(
        self, maker: ir.Statement, region: Region, simplifier: Simplifier, is_updated: bool, outer: Sequence[ir.For]
    ) -> ir.Statement:
        """Return a nest that computes the region instead of all, inside of the ``outer`` loops."""
        chain: list[ir.For] = []
        inner = maker
        while isinstance(inner, ir.For):
            chain.append(inner)
            inner = inner.body
        own = {loop.variable: loop for loop in chain}
        if not isinstance(inner, ir.Store) or any(loop.kind != "serial" for loop in chain):
            self.fail(f"what computes '{self.buffer}' is more than serial loops around one store")
        if len({*inner.indices}) != len(inner.indices) or any(place not in own for place in inner.indices):
            self.fail(f"the loops that compute '{self.buffer}' do not run over its dimensions")
        axes = [place for place in inner.indices if isinstance(place, ir.Variable)]
        extents = [simplifier(own[axis].extent) for axis in axes]
        if extents != [simplifier(extent) for extent in region.buffer.shape]:
            self.fail(f"the loops that compute '{self.buffer}' do not run over all of its dimensions")
        if any(one.buffer is region.buffer and one.indices != inner.indices for one in accesses(maker)):
            self.fail(f"elements of '{self.buffer}' are computed from others of it")
        offsets = [ir.Variable(axis.name) for axis in axes]
        for offset, size in zip(offsets, region.size, strict=True):
            simplifier.with_range(offset, (0, size - 1))
        moved = visit.substitution(dict(zip(axes, region.place(offsets), strict=True)))
        inside = region.inside(offsets, simplifier, outer)
        body = visit.map_statement(inner, moved)
        if inside is not None:
            # Instructions of a device store whole tiles to its memory, under a condition: they take no masks.
            is_open = not is_updated and region.buffer.memory in ("register", "scratch")
            body = _guarded(body, region.buffer, inside, simplifier) if is_open else ir.If(inside, body)
        for loop in reversed(chain):
            if loop.variable in axes:
                at = axes.index(loop.variable)
                body = ir.For(offsets[at], index(region.size[at]), "serial", body)
            else:
                body = replace(loop, extent=moved(loop.extent), body=body)
        return body


def _guarded(body: ir.Statement, buffer: ir.Buffer, inside: ir.Expression, simplifier: Simplifier) -> ir.Statement:
    """Return a store to memory of its own that reads only elements that exist in other buffers, and zeros elsewhere.

    Nobody reads what it stores there; so vectors of sums need no mask. Where zeros may divide it does not store.
    """
    assert isinstance(body, ir.Store), body
    inner = (one for one in visit.walk_expressions(body.value) if isinstance(one, ir.Binary))
    if any(one.operator in ("div", "mod") and visit.loads(one.right) for one in inner):
        return ir.If(inside, body)

    def rule(node: ir.Expression) -> ir.Expression:
        if not isinstance(node, ir.Load) or node.buffer is buffer:
            return node
        known = [at_least_zero(one, simplifier) for one in visit.conjuncts(node.mask)]

        def holds(least: ir.Expression) -> bool:
            bounds = simplifier.interval(simplifier(least))
            return (bounds is not None and bounds[0] >= 0) or simplifier.form(simplifier(least)) in known

        loose = set[ir.Variable]()  # on these depends an index that may leave the buffer
        for place, extent in zip(node.indices, node.buffer.shape, strict=True):
            if not holds(place) or not holds(combine("sub", combine("sub", extent, 1), place)):
                loose |= visit.free_variables(place)
        needed = [one for one in visit.conjuncts(inside) if not loose.isdisjoint(visit.free_variables(one))]
        return replace(node, mask=mask_of([*visit.conjuncts(node.mask), *needed], node.type.lanes))

    return visit.map_statement(body, visit.ExpressionMap(rule))


def _with_inner(outer: ir.Statement, inner: ir.Statement, new: ir.Statement) -> ir.Statement:
    """Return a statement with one of the statements directly in it replaced."""
    return visit.with_parts(outer, lambda expression: expression, lambda one: new if one is inner else one)


def _writes(statement: ir.Statement, buffer: ir.Buffer) -> bool:
    return any(one.writes for one in accesses(statement) if one.buffer is buffer)


def _uses(statement: ir.Statement, buffer: ir.Buffer) -> int:
    return sum(one.buffer is buffer for one in accesses(statement))
