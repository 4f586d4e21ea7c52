"""The cheapest edges whose removal separates a source from a sink."""

from __future__ import annotations

from collections import deque

__all__ = ["FlowNetwork"]


class FlowNetwork:
    """Nodes are numbers; edges have whole capacities. The cut is Dinic's, and that nearest to the source."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = []  # per node: numbers of edges; those that lead back are odd
        self._targets: list[int] = []
        self._free: list[int] = []

    def add_node(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def connect(self, start: int, end: int, capacity: int) -> None:
        for a, b, free in ((start, end, capacity), (end, start, 0)):
            self._edges[a].append(len(self._targets))
            self._targets.append(b)
            self._free.append(free)

    def cut(self, source: int, sink: int) -> set[int]:
        """The nodes on the side of the source."""
        while True:
            levels = self._levels(source)
            if sink not in levels:
                return set(levels)
            self._fill(source, sink, levels)

    def _levels(self, source: int) -> dict[int, int]:
        """How many edges with room lead to each node that is reached."""
        levels, work = {source: 0}, deque([source])
        while work:
            node = work.popleft()
            for e in self._edges[node]:
                if self._free[e] and self._targets[e] not in levels:
                    levels[self._targets[e]] = levels[node] + 1
                    work.append(self._targets[e])
        return levels

    def _fill(self, source: int, sink: int, levels: dict[int, int]) -> None:
        """As much as shortest paths carry."""
        tried = [0] * len(self._edges)  # edges of each node that lead nowhere, or are full
        path: list[int] = []
        node = source
        while node != source or tried[source] < len(self._edges[source]):
            if node == sink:
                most = min(self._free[e] for e in path)
                for e in path:
                    self._free[e] -= most
                    self._free[e ^ 1] += most
                path = path[: next(n for n, e in enumerate(path) if not self._free[e])]
            elif tried[node] == len(self._edges[node]):
                tried[self._targets[path.pop() ^ 1]] += 1
            elif self._leads(self._edges[node][tried[node]], node, levels):
                path.append(self._edges[node][tried[node]])
            else:
                tried[node] += 1
            node = self._targets[path[-1]] if path else source

    def _leads(self, edge: int, node: int, levels: dict[int, int]) -> bool:
        return self._free[edge] > 0 and levels.get(self._targets[edge]) == levels[node] + 1
