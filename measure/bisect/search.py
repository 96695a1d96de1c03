"""The search for the smallest part of a model that fails as the whole does, and for what makes it right."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from graft.core.machine.target import OPTIMISATIONS
from graft.core.passes.normalize import PASSES
from graft.measure.bisect.minimal import minimal
from graft.measure.bisect.report import Cure
from graft.measure.bisect.trial import Failure, Trials
from graft.measure.parts import Part, Whole
from graft.measure.verification import BadRegion


@dataclass
class Search:
    """One search, bounded in time: trials that begin before ``end`` (by `time.monotonic`) are the last."""

    whole: Whole
    trials: Trials
    failure: Failure
    """How the whole model fails."""
    end: float
    count: int = field(default=0)
    finished: bool = field(default=True)

    def expired(self) -> bool:
        """Whether the time is over; asked where there is more to try, so the search is then not finished."""
        self.finished = self.finished and monotonic() < self.end
        return not self.finished

    def fails(self, part: Part | None) -> bool:
        """Whether a part fails as the whole does."""
        return part is not None and self.failure.same(self._failure(part))

    def generalise(self) -> None:
        """Give parts the shapes of their arrays where the model fails with numbers too."""
        concrete = replace(self.whole, concrete=True)
        if not self.expired() and self.fails(concrete.part(range(len(self.whole.model.graph.node)))):
            self.whole = concrete

    def start(self, region: BadRegion | None) -> Sequence[int]:
        """Return the nodes to begin with: those of the first bad region if they fail by themselves, else all."""
        nodes = self.whole.model.graph.node
        if region is None:
            return range(len(nodes))
        own = [number for number, node in enumerate(nodes) if node.name in region.nodes]
        return own if own and not self.expired() and self.fails(self.whole.part(own)) else range(len(nodes))

    def prefer(self, backends: Sequence[str], numbers: Sequence[int]) -> None:
        """Name the backends if the nodes fail with them too: unnamed ones are placed by cost, which parts change."""
        before = self.trials
        self.trials = replace(before, request=replace(before.request, backends=list(backends)))
        if self.expired() or not self.fails(self.whole.part(numbers)):
            self.trials = before

    def smallest(self, numbers: Sequence[int]) -> tuple[Part, Failure]:
        """Return the smallest part of these nodes that fails, with one output if it fails with that alone, and how."""
        found = minimal(numbers, lambda some: self.fails(self.whole.part(some)), self.expired)
        part = self.whole.part(found)
        assert part is not None, found
        failure = self._failure(part) or self.failure
        outputs = [failure.output] if failure.output else list(part.expected)
        for name in outputs if len(part.expected) > 1 else ():
            single = self.whole.part(found, [name])
            if single is not None and not self.expired() and self.fails(single):
                return single, self._failure(single) or failure
        return part, failure

    def cures(self, part: Part, passes: Mapping[str, str]) -> list[Cure]:
        """Return the optimisations and passes (``passes``: those of plugins) without which a part is right.

        Each is tried with the whole model too.
        """
        already: Collection[str] = self.trials.request.without
        names = [name for name in dict.fromkeys((*passes, *PASSES, *OPTIMISATIONS)) if name not in already]
        found = [name for name in names if not self.expired() and self._failure(part, name) is None]
        every = self.whole.part(range(len(self.whole.model.graph.node)))
        assert every is not None
        return [
            Cure(name, passes.get(name, ""), None if self.expired() else self._failure(every, name) is None)
            for name in found
        ]

    def _failure(self, part: Part, *without: str) -> Failure | None:
        self.count += 1
        return self.trials.failure(part, without)
