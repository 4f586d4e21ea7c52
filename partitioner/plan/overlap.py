"""How much of a move can overlap with arithmetic: with operations that are independent of its value. A loop's body
counts twice in a row. Weights for an iteration may arrive during the previous one, and its gradients may be sent during
the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.costs.kernels.trips import count_executions
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.loops.loop_counter import carried_element
from shardc.partitioner.regions.region_graph import DecisionNode, Wire

__all__ = ["BesideMoves", "exposed", "find_overlap"]

#: Bodies of more instructions are not looked into.
_MOST = 1500
#: Which part of the arithmetic beside it a move may count on (others want it, too), and of a move what can be hidden.
_SHARE, _HIDDEN = 0.5, 0.9


@dataclass(frozen=True, slots=True)
class BesideMoves:
    """Seconds of arithmetic per run of a computation. ``beside`` is the arithmetic that is independent of an
    instruction's value. ``before`` is the arithmetic before an instruction, for operands that exist from the
    beginning."""

    beside: Mapping[Instruction, float]
    before: Mapping[Instruction, float]

    def seconds_of(self, wire: Wire) -> tuple[float, float]:
        """The arithmetic beside a move of ``wire`` and beside a move of one of its pieces, rounded to powers of four,
        so that equal layers have equal figures."""
        nodes = [r.node for r in wire.readers if r.node is not None]
        pieces = max((self.beside.get(n.op, 0.0) for n in nodes if n.op.opcode == "dynamic-slice"), default=0.0)
        producer = wire.producer
        if producer is None or producer.op.opcode == "parameter":
            whole = min((self.before.get(n.op, 0.0) for n in nodes), default=0.0)
        else:
            whole = 0.0 if producer.free else self.beside.get(producer.op, 0.0)
        return _round(whole), _round(pieces)


def exposed(seconds: NDArray[np.float64], room: float) -> NDArray[np.float64]:
    """The part of moves that take ``seconds`` that the arithmetic beside them does not hide."""
    return seconds - _HIDDEN * np.minimum(seconds, _SHARE * room)


def _round(room: float) -> float:
    return 4.0 ** math.floor(math.log(room, 4)) if room > 0 else 0.0


def find_overlap(module: Module, nodes: Sequence[DecisionNode]) -> BesideMoves:
    """The overlap if only ``nodes`` compute, split perfectly over the devices."""
    assert module.mesh is not None
    seconds: dict[Instruction, float] = {}
    for n in nodes:
        if n.rate:
            work = math.prod(f.size for f in n.strategies[0].problem.rule.factors) if n.strategies else n.work
            seconds[n.op] = seconds.get(n.op, 0.0) + n.rate * work / module.mesh.size
    counts = count_executions(module).count
    total: dict[Computation, float] = {}
    beside: dict[Instruction, float] = {}
    before: dict[Instruction, float] = {}
    loops = {i.attrs["body"] for i in module.instructions() if i.opcode == "while"}
    for c in module.computations:
        if c not in counts:
            continue
        times = counts[c]
        weights = np.zeros(len(c.instructions))
        for k, i in enumerate(c):
            inner = sum(total.get(b, 0.0) * counts.get(b, 0) / times for r, b in called_computations(i) if times)
            weights[k] = seconds.get(i, 0.0) + inner
        total[c] = float(weights.sum())
        if c in loops and len(c.instructions) <= _MOST:
            _fill(c, weights, beside, before)
    return BesideMoves(beside, before)


def _fill(
    body: Computation,
    weights: NDArray[np.float64],
    beside: dict[Instruction, float],
    before: dict[Instruction, float],
) -> None:
    """The figures of a loop's body, from two consecutive runs."""
    window = list(body)
    n, place = len(window), {i: k for k, i in enumerate(window)}
    reach = np.eye(2 * n, dtype=bool)
    for k in range(2 * n):
        i = window[k % n]
        for o in i.operands:
            reach[k] |= reach[place[o] + k - k % n]
        last = _of_last_run(i, body) if k >= n else None
        if last is not None:
            reach[k] |= reach[place[last]]
    both = np.tile(weights, 2)
    total = float(weights.sum())
    made, after = reach @ both, both @ reach
    free = (2 * total - made - after + both).reshape(2, n).max(axis=0)
    late = (2 * total - after).reshape(2, n).max(axis=0)
    for k, i in enumerate(window):
        beside[i] = min(total, max(0.0, float(free[k])))
        before[i] = min(total, max(0.0, float(late[k])))


def _of_last_run(i: Instruction, c: Computation) -> Instruction | None:
    """The value that the previous run of a loop's body passes to ``i``."""
    element = carried_element(i, c)
    if element is None:
        return None
    return c.root.operands[element] if c.root.opcode == "tuple" else c.root
