"""Ranges of a reduced operand, and the process that handles each: see `shardc.collectives.engine.plan_messages`.

``processes`` are always those of a group by node, both in order of position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["OperandRange", "own_ranges", "stand_ins", "whole_ranges"]

#: A process of a node takes a part of the work when it is at least this many bytes.
_SHARE = 1 << 14


@dataclass(frozen=True, slots=True)
class OperandRange:
    """Bytes ``lo`` up to ``hi`` of an operand: by node, who handles them; and the nodes that reduce them."""

    lo: int
    hi: int
    handlers: dict[int, int]
    reducers: tuple[int, ...]


def stand_ins(processes: dict[int, list[int]], process: int, home: int) -> dict[int, int]:
    """By node, who handles what ``process`` handles in its own, ``home``."""
    k = processes[home].index(process)
    return {node: process if node == home else of_node[k % len(of_node)] for node, of_node in processes.items()}


def _cuts(nbytes: int, parts: int, grain: int, least: int) -> list[int]:
    """Ends of at most ``parts`` about equal ranges of at least ``least`` bytes, cut at multiples of ``grain``."""
    parts = max(1, min(parts, nbytes // least))
    return [nbytes * k // parts // grain * grain for k in range(1, parts)] + [nbytes]


def own_ranges(processes: dict[int, list[int]], nbytes: int, grain: int) -> Iterator[OperandRange]:
    """Each range belongs to one node, and within it to one process."""
    lo = 0
    for node, end in zip(processes, _cuts(nbytes, len(processes), grain, 1), strict=False):
        of_node, begin = processes[node], lo
        for k, size in enumerate(_cuts(end - begin, len(of_node), grain, _SHARE)):
            handlers = {n: of_node[k] if n == node else others[k % len(others)] for n, others in processes.items()}
            yield OperandRange(lo, begin + size, handlers, (node,))
            lo = begin + size


def whole_ranges(processes: dict[int, list[int]], nbytes: int, grain: int) -> Iterator[OperandRange]:
    """Every node reduces everything; its processes share that."""
    ends = {node: _cuts(nbytes, len(of_node), grain, _SHARE) for node, of_node in processes.items()}
    lo = 0
    for hi in sorted({e for of_node in ends.values() for e in of_node}):
        handlers = {
            node: processes[node][next(k for k, end in enumerate(ends[node]) if end >= hi)] for node in processes
        }
        yield OperandRange(lo, hi, handlers, tuple(processes))
        lo = hi
