"""Segments of a step as graphs: what was put into streams once is launched again at the cost of one launch.

A graph holds the addresses that it was captured with. Arguments and results mostly lie where they lay some steps
before, so graphs are kept by the addresses of those that the segment touches; one is captured when addresses come back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from shardc.compiler.gpu_program import StartCollective
from shardc.launcher.gpu.plan import Segment
from shardc.launcher.gpu.streams import Streams, refs_of
from shardc.launcher.gpu.tables import GpuTables
from shardc.native.gpu.runtime import Graph

__all__ = ["GraphCache"]

#: Graphs of a segment, and addresses that are remembered.
_GRAPHS, _SEEN = 8, 64

_Key = tuple[tuple[int, ...], bytes, bytes]


class _CachedGraph:
    """What is known of a segment: the columns of the tables that it touches, its graphs, addresses seen."""

    def __init__(self, segment: Segment, streams: Streams) -> None:
        refs = [r for step in segment.steps for r in refs_of(step, streams.code.calls)]
        self.arguments = sorted({r.index for r in refs if r.space == "argument"})
        self.results = sorted({r.index for r in refs if r.space == "result"})
        self.collectives = sum(isinstance(step, StartCollective) for step in segment.steps)
        self.graphs: OrderedDict[_Key, Graph] = OrderedDict()
        self.seen: set[_Key] = set()


class GraphCache:
    """Runs segments on the addresses that ``tables`` have at the time."""

    def __init__(self, streams: Streams, tables: GpuTables) -> None:
        self._streams, self._tables = streams, tables
        self._kept: dict[Segment, _CachedGraph] = {}
        #: Graphs captured, and collectives done by all that was run.
        self.captured = self.collectives = 0

    def run(self, segment: Segment, devices: tuple[int, ...]) -> None:
        """Start the segment's work for ``devices``."""
        kept = self._kept.get(segment)
        if kept is None:
            kept = self._kept[segment] = _CachedGraph(segment, self._streams)
        self.collectives += kept.collectives
        key = (devices, self._addresses(kept.arguments, results=False), self._addresses(kept.results, results=True))
        graph = kept.graphs.get(key)
        if graph is None:
            if key not in kept.seen or self._streams.code.timed is not None:
                if len(kept.seen) == _SEEN:
                    kept.seen.clear()
                kept.seen.add(key)
                self._streams.put(segment.steps, devices)
                return
            graph = kept.graphs[key] = self._capture(segment, devices)
            if len(kept.graphs) > _GRAPHS:
                kept.graphs.popitem(last=False)
        else:
            kept.graphs.move_to_end(key)
        graph.launch(self._streams.context.main)

    def _capture(self, segment: Segment, devices: Sequence[int]) -> Graph:
        self.captured += 1
        streams = self._streams
        return streams.context.runtime.capture(streams.all, lambda: streams.put(segment.steps, devices))

    def _addresses(self, columns: Sequence[int], *, results: bool) -> bytes:
        table = self._tables.results if results else self._tables.arguments
        if not columns:
            return b""
        if len(columns) == table.addresses.shape[1]:
            return table.addresses.tobytes()
        return table.addresses[:, columns].tobytes()
