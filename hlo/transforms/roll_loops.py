"""Rolling: a program that does the same to its own results many times over becomes a loop.

Python loops that were traced are such programs. A stretch of equal instructions (opcode, shape, attributes,
source line) is found, cut where least flows from one iteration to the next, and becomes a ``while``: what iterations
hand on is its state; constants that differ are counted, or read from a table; starts of slices count. Lists that one
loop has filled are one array, whose parts the next loop reads in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.ir import Computation, Instruction, Module, has_side_effect, topological
from shardc.hlo.ir.make import make, map_computations
from shardc.hlo.ir.opset import OPS
from shardc.hlo.transforms.find_repeats import Repeat, find_repeats
from shardc.hlo.transforms.match_iterations import Iterations, Made, ProgramLine, match_iterations
from shardc.hlo.transforms.structure import Structure
from shardc.hlo.transforms.write_loop import can_write, write_loop

__all__ = ["Label", "RollLoops"]

#: What an instruction carries besides what it does: only instructions with equal labels become one.
Label = Callable[[Instruction], object]

#: Opcodes that compute each element by itself, beside those of the elementwise family.
_BY_ELEMENT = frozenset({"broadcast", "reshape"})

#: Opcodes that are no work: a loop of them alone only takes apart what another has collected.
_MOVES = frozenset({"slice", "reshape", "broadcast", "tuple", "get-tuple-element", "copy", "convert", "iota"})

#: How many loops lie in one another.
_DEEP = 6


@dataclass(frozen=True, slots=True)
class RollLoops:
    """Roll at least ``times`` equal iterations that hold ``instructions`` together.

    Iterations that only compute element by element are one kernel while there are few of them, so a loop gets as many
    of them at once as make ``fused`` instructions. Those that hand nothing on and work on ``large`` arrays (bytes) stay
    as they are up to ``unrolled`` instructions: a loop would read in each what one kernel reads once.
    """

    name: str = "roll-loops"
    why: str = "iterations of a Python loop are compiled once"
    times: int = 8
    instructions: int = 400
    fused: int = 64
    unrolled: int = 1024
    large: int = 1 << 16

    def run(self, module: Module) -> Module:
        return map_computations(module, lambda c: self.roll(c)[0])

    def roll(
        self, computation: Computation, label: Label = lambda i: None
    ) -> tuple[Computation, dict[Instruction, Instruction]]:
        """The computation with loops, and the instructions of its loops by those that they stand for."""
        moved: dict[Instruction, Instruction] = {}
        structure = Structure()
        for _ in range(_DEEP):
            written = self._roll_once(computation, label, structure)
            if written is None:
                break
            computation, stands_for = written
            moved = {old: stands_for.get(new, new) for old, new in moved.items()} | stands_for
        return computation, moved

    def _roll_once(
        self, computation: Computation, label: Label, structure: Structure
    ) -> tuple[Computation, dict[Instruction, Instruction]] | None:
        """One round: all loops that do not overlap, the innermost ones."""
        line = _line(computation)
        if len(line.instructions) < self.instructions:
            return None
        codes = _codes(line, label, structure)
        users = _users(line, computation.root)
        found: list[Iterations] = []
        for repeat in find_repeats(codes, self.times, self.instructions):
            if not any(f.start < repeat.stop and repeat.start < f.stop for f in found):
                found += [m for m in [self._match(line, users, repeat)] if m is not None]
        if not found:
            return None
        return _write(computation, line, users, sorted(found, key=lambda m: m.start))

    def _match(self, line: ProgramLine, users: list[list[int]], repeat: Repeat) -> Iterations | None:
        start = _best_cut(line, users, repeat)
        found = match_iterations(line, start, repeat.period, (repeat.stop - start) // repeat.period)
        if found is None or found.count < self.times or found.count * found.period < self.instructions:
            return None
        if all(i.opcode in _MOVES for i in found.body) or self._is_one_kernel(found, users):
            return None
        together = max(found.back, self._together(found))
        if together > 1:
            found = match_iterations(line, found.start, found.period * together, found.count // together)
        return found if found is not None and can_write(found) else None

    def _together(self, found: Iterations) -> int:
        """How many iterations at once, so that they fuse."""
        by_element = all(map(_is_by_element, found.body)) and not found.reads_parts
        return max(1, min(self.fused // found.period, found.count // 2)) if by_element else 1

    def _is_one_kernel(self, found: Iterations, users: list[list[int]]) -> bool:
        """Few iterations, element by element over large arrays and parts of others; none of which needs another, but
        for parts that are added up."""
        few = found.count * found.period <= self.unrolled
        if not few or max(i.shape.nbytes for i in found.body) < self.large:
            return False
        if found.back and not _adds_parts(found, users):
            return False
        return all(
            _is_by_element(i) or (i.opcode == "slice" and not isinstance(reads[0], Made))
            for i, reads in zip(found.body, found.reads, strict=True)
        )


def _adds_parts(found: Iterations, users: list[list[int]]) -> bool:
    """Whether each iteration adds parts of arrays to one sum, which nobody else reads before the last iteration."""
    handed = {r for row in found.reads for r in row if isinstance(r, Made) and r.back}
    if len(handed) > 1 or all(i.opcode != "slice" for i in found.body):
        return False
    ((index, back),) = {(r.index, r.back) for r in handed}
    readers = [i for i, row in zip(found.body, found.reads, strict=True) if not handed.isdisjoint(row)]
    sums = range(found.start + index, found.stop - found.period, found.period)
    return back == 1 and [i.opcode for i in readers] == ["add"] and all(len(users[n]) == 1 for n in sums)


def _is_by_element(i: Instruction) -> bool:
    return OPS[i.opcode].family == "elementwise" or i.opcode in _BY_ELEMENT


def _line(computation: Computation) -> ProgramLine:
    line = [i for i in computation if i.opcode not in ("constant", "parameter")]
    outside = [i for i in computation if i.opcode in ("constant", "parameter")]
    number = {i: n for n, i in enumerate([*line, *outside])}
    return ProgramLine(line, [[number[o] for o in i.operands] for i in line], outside)


def _codes(line: ProgramLine, label: Label, structure: Structure) -> NDArray[np.int64]:
    """Equal numbers for instructions that can be one; what has side effects equals nothing."""
    known: dict[object, int] = {}
    made = []
    for n, i in enumerate(line.instructions):
        key: object = n
        if not has_side_effect(i):
            attrs = {k: _still(k, v) for k, v in i.attrs.items()}
            said = structure.attributes(i.replace(attrs=attrs)) if attrs else ""
            key = (i.opcode, i.shape, len(i.operands), said, i.metadata, repr(i.sharding), label(i))
        made.append(known.setdefault(key, len(known)))
    return np.array(made)


def _still(name: str, value: Any) -> Any:
    """An attribute without the places that may move from iteration to iteration."""
    if name == "slice":
        return tuple((stop - start, step) for start, stop, step in value)
    if name == "padding":
        return tuple((low + high, inside) for low, high, inside in value)
    return value


def _users(line: ProgramLine, root: Instruction) -> list[list[int]]:
    """Positions that read each position of the line; the root is read by whoever calls."""
    count = len(line.instructions)
    users: list[list[int]] = [[] for _ in range(count)]
    for n, reads in enumerate(line.reads):
        for o in reads:
            if o < count:
                users[o].append(n)
    if root.opcode not in ("constant", "parameter"):
        users[line.instructions.index(root)].append(count)
    return users


def _best_cut(line: ProgramLine, users: list[list[int]], repeat: Repeat) -> int:
    """The beginning, within the first period, where least flows from one iteration to the next."""
    period = repeat.period
    times = (repeat.stop - repeat.start) // period
    middle = repeat.start + times // 2 * period
    flow = np.zeros(period, np.int64)
    for n in range(middle, middle + period):
        last = max((u for u in users[n] if u < repeat.stop), default=n)
        size = max(line.instructions[n].shape.nbytes, 1)
        flow += size * ((last - n) // period)
        for cut in range(n + 1, n + 1 + (last - n) % period):
            flow[(cut - repeat.start) % period] += size
    left = (repeat.stop - repeat.start) % period
    order = sorted(range(period), key=lambda cut: (flow[cut], cut > left, cut))
    return repeat.start + order[0]


def _write(
    computation: Computation, line: ProgramLine, users: list[list[int]], found: Sequence[Iterations]
) -> tuple[Computation, dict[Instruction, Instruction]]:
    """The computation with the loops in place of what was found, and what stands for their instructions."""
    number = {i: n for n, i in enumerate(line.instructions)}
    regions = iter(found)
    region = next(regions, None)
    now: dict[Instruction, Instruction] = {}
    stands: dict[Instruction, Instruction] = {}
    stacked: dict[Instruction, _Piece] = {}
    kept: list[Instruction] = []
    for old in computation:
        n = number.get(old, -1)
        if region is not None and region.start <= n < region.stop:
            if n == region.stop - 1:
                loop = write_loop(region, _used(region, users), now)
                kept += loop.instructions
                for (index, t), value in loop.values.items():
                    now[region.of(index)[t]] = value
                for index, (stack, rows) in loop.stacks.items():
                    stacked |= {region.of(index)[t]: _Piece(stack, row) for row, t in enumerate(rows)}
                stands |= {o: new for index, new in enumerate(loop.body) for o in region.of(index)}
                region = next(regions, None)
            continue
        new = _joined(old, now, stacked, kept) if old.opcode == "concatenate" else None
        if new is None:
            operands = tuple(now.get(o, o) for o in old.operands)
            new = old if operands == old.operands else old.replace(operands=operands)
        kept.append(new)
        if new is not old:
            now[old] = new
    root = now.get(computation.root, computation.root)
    needed = {*topological([root, *(i for i in kept if has_side_effect(i))])}
    kept = [i for i in kept if i in needed or i.opcode == "parameter"]
    return Computation(computation.name, kept, root), stands


def _used(found: Iterations, users: list[list[int]]) -> list[tuple[int, int]]:
    """What is read behind the iterations: instructions of the body, and in which of them."""
    return [
        (index, t)
        for index in range(found.period)
        for t in range(found.count)
        if any(u >= found.stop for u in users[found.start + t * found.period + index])
    ]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row of what a loop has collected."""

    stack: Instruction
    row: int


def _joined(
    old: Instruction,
    now: Mapping[Instruction, Instruction],
    stacked: Mapping[Instruction, _Piece],
    kept: list[Instruction],
) -> Instruction | None:
    """A ``concatenate`` of what a loop has collected, row by row, takes the rows as they lie; None where it is none."""
    if old.attrs["dimensions"] != (0,):
        return None
    made: list[Instruction] = []
    pieces = [_piece(o, stacked) for o in old.operands]
    k = 0
    while k < len(pieces):
        piece, stop = pieces[k], k + 1
        if piece is None:
            made.append(now.get(old.operands[k], old.operands[k]))
        else:
            step = -1 if k + 1 < len(pieces) and pieces[k + 1] == _Piece(piece.stack, piece.row - 1) else 1
            while stop < len(pieces) and pieces[stop] == _Piece(piece.stack, piece.row + step * (stop - k)):
                stop += 1
            made.append(_rows(piece, stop - k, step, old, kept))
        k = stop
    if len(made) == len(old.operands):
        return None
    return old.replace(operands=tuple(made)) if len(made) > 1 else make("copy", old.shape, made, old)


def _rows(first: _Piece, rows: int, step: int, like: Instruction, kept: list[Instruction]) -> Instruction:
    """So many rows of what a loop has collected, from ``first`` on or back."""
    part, dims = first.stack, first.stack.shape.dims
    if rows < dims[0]:
        low = first.row if step > 0 else first.row - rows + 1
        ranges = ((low, low + rows, 1), *((0, n, 1) for n in dims[1:]))
        part = make("slice", part.shape.with_dims((rows, *dims[1:])), (part,), like, slice=ranges)
        kept.append(part)
    if step < 0:
        part = make("reverse", part.shape, (part,), like, dimensions=(0,))
        kept.append(part)
    return part


def _piece(x: Instruction, stacked: Mapping[Instruction, _Piece]) -> _Piece | None:
    """The row that ``x``, a new leading dimension before one of an iteration's values, is."""
    if x.opcode == "reshape" and x.operands[0] in stacked and x.shape.dims == (1, *x.operands[0].shape.dims):
        return stacked[x.operands[0]]
    return None
