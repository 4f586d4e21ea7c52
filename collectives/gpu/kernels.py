"""Collectives among devices that share one GPU, as kernels over the memory of all members of a group.

A kernel has the operands of the members, by position, and their results as arrays. What it does with them is what
`shardc.native.collectives.work` does on a CPU: strips of elements are copied, or reduced by the tree over positions
that `shardc.collectives.call.reduction` describes, so results have the same bits. Threads take 16 bytes at a time where
strips begin at multiples of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.native.collectives.combining import Combining
from shardc.native.gpu.code import grid_code
from shardc.native.gpu.grid import GridCode
from shardc.native.gpu.runtime import LaunchShape
from shardc.native.gpu.target import GpuTarget
from shardc.native.llvm.flow import at_byte
from shardc.native.math.element import Element
from shardc.native.math.vector import I32, I64, PTR, constant, with_lanes

__all__ = ["MOST_MEMBERS", "GroupKernel"]

#: Members of a group that a kernel has parameters for: operands and results, 4096 bytes in all.
MOST_MEMBERS = 250

_THREADS, _WARP = 256, 32
_VECTOR = 16
#: Vectors that a thread moves, one behind the other, where there are many.
_UNROLL, _MANY = 4, 1 << 16
#: Lanes of elements that are widened while they are combined: each member's take registers.
_WIDENED = 4


@dataclass(frozen=True, slots=True)
class GroupKernel:
    """The kernel of one operand of a collective over groups of ``members``.

    ``strip`` counts the elements of a strip: all of an operand for an all-reduce and an all-gather, a member's chunk
    for a reduce-scatter and an all-to-all. ``in_place``: results of the all-reduce lie where the operands are.
    """

    op: str
    members: int
    reduction: str
    element: Element
    strip: int
    in_place: bool = False

    @property
    def symbol(self) -> str:
        words = (self.op.replace("-", "_"), self.reduction, self.element.name, self.members, self.strip)
        return "_".join(str(w) for w in words if w != "") + ("_in_place" if self.in_place else "")

    @property
    def _reduces(self) -> bool:
        return self.op in ("all-reduce", "reduce-scatter", "reduce")

    @property
    def nbytes(self) -> int:
        """Of a strip."""
        return self.strip * self.element.nbytes

    @property
    def _alone(self) -> bool:
        """Whether every strip begins where its array begins."""
        return self.op in ("all-reduce", "reduce")

    @property
    def _lanes(self) -> int:
        """Elements that a thread combines at a time."""
        e = self.element
        widened = e.kind == "float" and e.bits < 32
        return min(max(1, _VECTOR // e.nbytes), _WIDENED if widened and e.nbytes == 1 else _VECTOR)

    @property
    def _unit(self) -> int:
        """Bytes that a thread copies at a time."""
        return min(_VECTOR, self.nbytes & -self.nbytes)

    @property
    def _pieces(self) -> int:
        """Of a strip: what a thread does at a time, the last maybe smaller."""
        return -(-self.strip // self._lanes) if self._reduces else self.nbytes // self._unit

    @property
    def _unroll(self) -> int:
        return _UNROLL if self._pieces >= _MANY and not self._reduces else 1

    @property
    def shape(self) -> LaunchShape:
        """Of a launch: pieces by strips (a sender's, for an all-to-all, by receivers)."""
        threads = min(_THREADS, -(-self._pieces // _WARP) * _WARP)
        blocks = -(-self._pieces // (threads * self._unroll))
        strips = 1 if self._alone else self.members
        return LaunchShape((blocks, strips, self.members if self.op == "all-to-all" else 1), threads)

    def emit(self, module: ir.Module, target: GpuTarget) -> None:
        """Add the kernel to ``module``; its arrays are the members' operands, then their results."""
        code = grid_code(target)
        readonly = () if self.in_place else range(self.members)
        results = 1 if self.op == "reduce" else self.members
        function = code.define(module, self.symbol, self.members + results, readonly, self.shape.threads)
        slots = ir.IRBuilder(function.append_basic_block("entry"))
        body = function.append_basic_block("body")
        b = ir.IRBuilder(body)
        arrays = list(code.pointers(function))
        operands, targets = arrays[: self.members], arrays[self.members :]
        thread, first = b.zext(code.thread(b), I64), b.zext(code.block(b), I64)
        per_block = self.shape.threads * self._unroll
        start = b.add(b.mul(first, constant(I64, per_block)), thread)
        for turn in range(self._unroll):
            piece = b.add(start, constant(I64, turn * self.shape.threads))
            with b.if_then(b.icmp_unsigned("<", piece, constant(I64, self._pieces))):
                if self._reduces:
                    self._reduce(b, code, piece, operands, targets)
                else:
                    self._copy(b, code, piece, operands, targets)
        code.leave(b)
        code.enter(slots)
        slots.branch(body)

    def _copy(
        self,
        b: ir.IRBuilder,
        code: GridCode,
        piece: ir.Value,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Value],
    ) -> None:
        """A piece of the strip of the grid's row: from its sender to everybody, or to the row's receiver."""
        t = with_lanes(ir.IntType(8 * min(self._unit, 4)), max(1, self._unit // 4))
        sender = code.block(b, 1)
        at = b.mul(piece, constant(I64, self._unit))
        behind = b.add(b.mul(b.zext(sender, I64), constant(I64, self.nbytes)), at)
        if self.op == "all-gather":
            source, targets = at_byte(b, _pick(b, operands, sender), at), results
        else:
            receiver = code.block(b, 2)
            chunk = b.mul(b.zext(receiver, I64), constant(I64, self.nbytes))
            source, targets = at_byte(b, _pick(b, operands, sender), b.add(chunk, at)), [_pick(b, results, receiver)]
        value = b.load(source, typ=t, align=self._unit)
        for target in targets:
            b.store(value, at_byte(b, target, behind), align=self._unit)

    def _reduce(
        self,
        b: ir.IRBuilder,
        code: GridCode,
        piece: ir.Value,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Value],
    ) -> None:
        """A piece of the sum to everybody, or of the row's chunk to its receiver."""
        skipped, targets = constant(I64, 0), results
        if not self._alone:
            receiver = code.block(b, 1)
            skipped = b.mul(b.zext(receiver, I64), constant(I64, self.nbytes))
            targets = [_pick(b, results, receiver)]
        lanes = self._lanes
        begin = b.mul(piece, constant(I64, lanes))
        left = self.strip % lanes
        if not left:
            self._combine(b, operands, targets, skipped, begin, lanes)
            return
        whole = b.icmp_unsigned("<", piece, constant(I64, self.strip // lanes))
        with b.if_else(whole) as (vector, rest):
            with vector:
                self._combine(b, operands, targets, skipped, begin, lanes)
            with rest:
                for n in range(left):
                    at = b.add(begin, constant(I64, n))
                    self._combine(b, operands, targets, skipped, at, 1)

    def _combine(
        self,
        b: ir.IRBuilder,
        operands: Sequence[ir.Value],
        targets: Sequence[ir.Value],
        skipped: ir.Value,
        begin: ir.Value,
        lanes: int,
    ) -> None:
        """``lanes`` elements from ``begin`` on, behind ``skipped`` bytes of the operands, go to ``targets``."""
        how, item = Combining(self.reduction, self.element), self.element.nbytes
        offset = b.mul(begin, constant(I64, item))
        place = b.add(skipped, offset)
        aligned = self._alone or self.nbytes % (lanes * item) == 0
        align = lanes * item if aligned else item // how.parts

        def tree(low: int, high: int, width: int) -> ir.Value:
            """Members ``low`` to ``high`` of at most ``width``, a power of two."""
            if width == 1:
                return how.load(b, at_byte(b, operands[low], place), lanes * how.parts, align)
            middle = low + width // 2
            if middle >= high:
                return tree(low, high, width // 2)
            return how.combine(b, tree(low, middle, width // 2), tree(middle, high, width // 2))

        total = tree(0, self.members, 1 << (self.members - 1).bit_length())
        for target in targets:
            how.store(b, total, at_byte(b, target, offset), align)


def _pick(b: ir.IRBuilder, arrays: Sequence[ir.Value], index: ir.Value) -> ir.Value:
    """The array of that number (i32)."""
    found = arrays[0]
    for n, array in enumerate(arrays[1:], start=1):
        found = b.select(b.icmp_unsigned("==", index, constant(I32, n)), array, found)
    assert found.type == PTR
    return found
