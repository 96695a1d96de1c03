"""The smallest cut between two sides of a network (Dinic 1970)."""

from __future__ import annotations

INFINITE = 1 << 60
SOURCE, SINK = 0, 1


class Network:
    """A directed network with whole capacities; vertices are numbers, `SOURCE` and `SINK` among them."""

    def __init__(self) -> None:
        self._arcs: list[list[int]] = [[], []]
        """By vertex: the numbers of the arcs that leave it; arc n ^ 1 is the reverse of arc n."""
        self._head: list[int] = []
        self._left: list[int] = []

    def vertex(self) -> int:
        """Return a new vertex."""
        self._arcs.append([])
        return len(self._arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> None:
        """Add an arc."""
        for start, end, left in ((tail, head, capacity), (head, tail, 0)):
            self._arcs[start].append(len(self._head))
            self._head.append(end)
            self._left.append(left)

    def sink_side(self) -> set[int]:
        """Saturate the network and return the smallest set of vertices on the sink's side of a minimal cut."""
        while (level := self._levels())[SINK] >= 0:
            following = [0] * len(self._arcs)
            while self._augment(level, following):
                pass
        side = {SINK}
        stack = [SINK]
        while stack:
            vertex = stack.pop()
            for arc in self._arcs[vertex]:
                tail = self._head[arc]
                if self._left[arc ^ 1] and tail not in side:
                    side.add(tail)
                    stack.append(tail)
        return side

    def _levels(self) -> list[int]:
        level = [-1] * len(self._arcs)
        level[SOURCE] = 0
        queue = [SOURCE]
        for vertex in queue:
            for arc in self._arcs[vertex]:
                head = self._head[arc]
                if self._left[arc] and level[head] < 0:
                    level[head] = level[vertex] + 1
                    queue.append(head)
        return level

    def _augment(self, level: list[int], following: list[int]) -> int:
        """Send as much as one path carries; return how much."""
        path: list[int] = []
        vertex = SOURCE
        while vertex != SINK:
            arcs = self._arcs[vertex]
            while following[vertex] < len(arcs):
                arc = arcs[following[vertex]]
                if self._left[arc] and level[self._head[arc]] == level[vertex] + 1:
                    break
                following[vertex] += 1
            else:
                if not path:
                    return 0
                vertex = self._head[path.pop() ^ 1]
                following[vertex] += 1
                continue
            path.append(arcs[following[vertex]])
            vertex = self._head[path[-1]]
        amount = min(self._left[arc] for arc in path)
        for arc in path:
            self._left[arc] -= amount
            self._left[arc ^ 1] += amount
        return amount
