"""Products on a grid: a block computes a tile of the result, from tiles of both operands in shared memory.

While a tile is multiplied the next ones are on their way (software pipelining). When the sums are complete they go
through shared memory, so that what is made from them (bias, activation, residual) is computed and written in whole runs
of the result. Where there are too few tiles for the chip, the depth is cut (split-K), and a second launch adds up the
parts, always in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, InRange, LoopVar, condition, delinearise, linear
from shardc.compiler.elements.arithmetic.registers import decode, memory_type
from shardc.compiler.elements.elements import Element
from shardc.compiler.elements.folds import FOLDS, convert_element
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val, deepest
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.maps.loop import emit_maps
from shardc.compiler.gpu.maps.maps import GridOutput, is_computed_by_rules
from shardc.compiler.gpu.products.loaders import LoadedSide, Loader, loader
from shardc.compiler.gpu.products.plan import ProductPlan, plan_product
from shardc.compiler.gpu.products.problem import ProductProblem, dot_problem
from shardc.compiler.gpu.products.threads import ThreadProduct
from shardc.compiler.gpu.products.warps import WarpProduct
from shardc.compiler.lower.fuse.fusion_rules import is_alias, is_elementwise
from shardc.compiler.lower.fuse.row_space import roots_of
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape, array_shape
from shardc.native.math.vector import I32, I64, constant, with_lanes

__all__ = ["ProductOutput", "emit_product", "emit_products", "only", "reads_in_place", "takes_product"]

#: Rows of tiles that blocks with neighbouring numbers share, so that what they read is in the cache.
_NEIGHBOURS = 8
#: Threads that may have 128 registers each.
_RESIDENT = 512
#: Bytes of a thread's widest access.
_WIDEST = 16
#: Shallower products are maps: they cost what writing the result does.
_SHALLOW = 4


def takes_product(kernel: GpuKernel) -> bool:
    """A dot, or a fusion of one and what is computed from its elements one by one."""
    dot = only(kernel, "dot")
    if dot is None or any(0 in o.shape.dims for o in (dot, *dot.operands)):
        return False
    return dot_problem(dot).k > _SHALLOW and reads_in_place(kernel, dot)


def only(kernel: GpuKernel, opcode: str) -> Instruction | None:
    """The kernel's instruction of this kind, if there is just one."""
    found = [i for i in kernel.computation if i.opcode == opcode]
    return found[0] if len(found) == 1 else None


def reads_in_place(kernel: GpuKernel, product: Instruction) -> bool:
    """Whether all results take the product's element at their own place, and nothing else of the product. Everything
    else must be what a thread can compute on the way, without sums of its own."""
    root = kernel.computation.root
    if not is_computed_by_rules(kernel.computation) or any(
        i.opcode in FOLDS for i in kernel.computation if i is not product
    ):
        return False
    made = {product}
    for i in kernel.computation:
        if any(o in made for o in i.operands):
            if not (is_elementwise(i) or is_alias(i) or (i is root and i.opcode == "tuple")):
                return False
            made.add(i)
    roots = roots_of(kernel.computation)
    return all(r in made and r.shape.size == product.shape.size for r in roots)


def emit_products(kernel: GpuKernel) -> None:
    """The kernel of a dot and what is fused with it."""
    dot = only(kernel, "dot")
    assert dot is not None
    emit_product(kernel, dot_problem(dot))


@dataclass(frozen=True, slots=True)
class ProductOutput:
    """``root``'s element at the product's index goes to ``array`` of ``shape``. None as root: the sum as it is."""

    array: LaunchArray
    shape: Shape
    root: Instruction | None


def emit_product(kernel: GpuKernel, problem: ProductProblem, whole: bool = True) -> None:
    """The launches of a kernel that computes ``problem`` and what the kernel's computation makes from it.

    ``whole``: the problem's places are all of the result's.
    """
    plan = plan_product(problem, kernel.target, kernel.tuning, may_split=whole)
    roots = roots_of(kernel.computation)
    if plan.splits == 1:
        outputs = [ProductOutput(*row) for row in zip(kernel.results, kernel.result_shapes, roots, strict=True)]
        _TiledProduct(kernel, problem, plan, outputs).emit()
        return
    sums = array_shape(problem.kind, plan.splits, *problem.product.shape.dims)
    parts = kernel.scratch(sums.nbytes)
    _TiledProduct(kernel, problem, plan, [ProductOutput(parts, sums, None)]).emit()
    _add_up(kernel, problem, roots, parts, sums)


def _add_up(
    kernel: GpuKernel, problem: ProductProblem, roots: Sequence[Instruction], parts: LaunchArray, sums: Shape
) -> None:
    """The sums of parts of the depth, added up by a tree, and what is made from them: a map."""
    kind, product = problem.kind, problem.product
    dims = product.shape.dims
    leaf = Instruction("parameter", sums, attrs={"index": -1}, name="parts")
    values: list[Instruction] = []
    for n in range(sums.dims[0]):
        cut = ((n, n + 1, 1), *((0, size, 1) for size in dims))
        part = Instruction("slice", array_shape(kind, 1, *dims), (leaf,), {"slice": cut})
        values.append(Instruction("reshape", array_shape(kind, *dims), (part,)))
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        odd = values[len(values) & ~1 :]
        opcode = "or" if kind.kind == "pred" else "add"
        values = [Instruction(opcode, x.shape, (x, y)) for x, y in pairs] + odd
    new = {product: Instruction("convert", product.shape, (values[0],)) if product.shape.dtype != kind else values[0]}
    for i in kernel.computation:
        if any(o in new for o in i.operands):
            new[i] = i.replace(operands=tuple(new.get(o, o) for o in i.operands))

    def element(root: Instruction) -> Element:
        return lambda e, index, mask: e.value(new[root], index, mask)

    rows = zip(kernel.results, kernel.result_shapes, map(element, roots), strict=True)
    emit_maps(kernel, {**kernel.leaves(), leaf: parts}, [GridOutput(*row) for row in rows])


class _TiledProduct:
    """The launch that computes tiles, or the sums of parts of the depth of tiles."""

    def __init__(
        self, kernel: GpuKernel, problem: ProductProblem, plan: ProductPlan, outputs: Sequence[ProductOutput]
    ) -> None:
        self.kernel, self.problem, self.plan, self.outputs = kernel, problem, plan, outputs
        tile = plan.tile
        self.tiles = (-(-problem.m // tile.rows), -(-problem.n // tile.columns))
        self.steps = -(-problem.k // tile.depth)
        leaves = kernel.leaves()
        self.function = kernel.function([*leaves.values(), *(o.array for o in outputs)], plan.threads)
        if min(problem.left.run, problem.right.run) > 1 and not problem.left.windowed:
            # So many blocks fit in the registers of a multiprocessor: some multiply while others wait. Where addresses
            # take registers themselves, nobody is made to spill for it.
            blocks = min(plan.tile.blocks, _RESIDENT // plan.threads)
            set.add(self.function.function.attributes, f'"nvvm.minctasm"="{blocks}"')
        self.code = self.function.code
        e = self.e = self.function.emitter(leaves)
        b = e.entry.builder
        self.thread = b.zext(self.code.thread(b), I64)
        self.row, self.column = (e.source.loop(n) for n in self.tiles)
        self.batch = tuple(e.source.loop(n) for n in problem.batch)
        self.step, self.part = e.source.loop(self.steps), e.source.loop(plan.splits)
        self.sums = (ThreadProduct if plan.mma is None else WarpProduct)(e, plan, problem, self.thread)

    def emit(self) -> None:
        """Define the function and launch it."""
        self._locate()
        first, count = self._range()
        self._multiply(first, count, self._loaders())
        pitch, nbytes = self._collect()
        self._finish(pitch)
        self.e.finish()
        blocks = self.problem.batches * math.prod(self.tiles)
        self.kernel.launch(self.function, (blocks, self.plan.splits), max(self.sums.shared_bytes, nbytes))

    # Where a block works.

    def _locate(self) -> None:
        """Bind the tile, the batch and the part of this block. Blocks walk a few rows of tiles together."""
        b = self.e.entry.builder
        down, across = self.tiles
        number = self.code.block(b)
        rest = b.udiv(number, constant(I32, down * across))
        number = b.urem(number, constant(I32, down * across))
        together = constant(I32, _NEIGHBOURS * across)
        first = b.mul(b.udiv(number, together), constant(I32, _NEIGHBOURS))
        left = b.sub(constant(I32, down), first)
        few = constant(I32, _NEIGHBOURS)
        height = b.select(b.icmp_unsigned("<", left, few), left, few)
        number = b.urem(number, together)
        self._bind(self.row, b.add(first, b.urem(number, height)))
        self._bind(self.column, b.udiv(number, height))
        for v in reversed(self.batch):
            self._bind(v, b.urem(rest, constant(I32, v.size)))
            rest = b.udiv(rest, constant(I32, v.size))
        self._bind(self.part, self.code.block(b, 1))

    def _bind(self, v: LoopVar, value: ir.Value) -> None:
        if v.size > 1:
            self.e.bind(v, Val((self.e.entry.builder.zext(value, I64),), self.e.entry))

    def _range(self) -> tuple[ir.Value, ir.Value]:
        """The first tile of the depth, and how many there are."""
        b, splits = self.e.entry.builder, self.plan.splits
        if splits == 1:
            return constant(I64, 0), constant(I64, self.steps)
        part = self.e.bound(self.part).value.value
        first = b.udiv(b.mul(part, constant(I64, self.steps)), constant(I64, splits))
        past = b.udiv(b.mul(b.add(part, constant(I64, 1)), constant(I64, self.steps)), constant(I64, splits))
        return first, b.sub(past, first)

    def _loaders(self) -> list[Loader]:
        p, tile = self.problem, self.plan.tile
        batch = tuple(Expr.of(v) for v in self.batch)
        start = Expr.of(self.step) * tile.depth
        rows = LoadedSide(p.left, batch, Expr.of(self.row) * tile.rows, p.m, start, p.k)
        columns = LoadedSide(p.right, batch, Expr.of(self.column) * tile.columns, p.n, start, p.k)
        sides = ((rows, self.sums.left), (columns, self.sums.right))
        return [loader(self.e, side, place, self.thread, self.plan.threads) for side, place in sides]

    # The sums.

    def _multiply(self, first: ir.Value, count: ir.Value, loaders: Sequence[Loader]) -> None:
        """Add up all products. ``stages - 1`` tiles are on their way; past the last one it comes again."""
        e, code, stages = self.e, self.code, self.plan.tile.stages
        b = e.entry.builder
        last = b.sub(count, constant(I64, 1))
        copies = any(x.copies for x in loaders)

        def select(frame: Frame, number: ir.Value) -> None:
            at = frame.builder
            inside = at.select(at.icmp_unsigned("<", number, last), number, last)
            if self.steps > 1:
                e.bind(self.step, Val((at.add(first, inside),), frame))

        for ahead in range(stages - 1):
            select(e.entry, constant(I64, ahead))
            for action in ("begin", "end"):
                for x in loaders:
                    getattr(x, action)(e.entry, constant(I32, ahead))
            if copies:
                code.commit_copies(b)
        loop = ForLoop(e.entry, count)
        inner = loop.frame.builder
        if copies:
            code.await_copies(inner, stages - 2)
        code.barrier(inner)
        ahead = inner.add(loop.index, constant(I64, stages - 1))
        stage, free = (inner.urem(inner.trunc(x, I32), constant(I32, stages)) for x in (loop.index, ahead))
        select(loop.frame, ahead)
        for x in loaders:
            x.begin(loop.frame, free)
        if copies:
            code.commit_copies(inner)
        self.sums.add(loop.frame, stage)
        for x in loaders:
            x.end(loop.frame, free)
        loop.close()
        if copies:
            code.await_copies(b, 0)
        code.barrier(b)

    def _collect(self) -> tuple[int, int]:
        """All sums in shared memory; how many elements rows are apart, and how many bytes it takes."""
        p, tile = self.problem, self.plan.tile
        pitch = tile.columns + (1 if p.rows_together else max(1, _WIDEST // p.kind.nbytes))
        b = self.e.entry.builder
        self.sums.store(self.e.entry, self.code.shared(b, 0), pitch)
        self.code.barrier(b)
        return pitch, tile.rows * pitch * p.kind.nbytes

    # The results.

    def _finish(self, pitch: int) -> None:
        """Every thread takes runs of the tile, makes the results' elements of them and writes those."""
        e, p, plan = self.e, self.problem, self.plan
        tile, run = plan.tile, self._run()
        fast, slow = (tile.rows, tile.columns) if p.rows_together else (tile.columns // run, tile.rows)
        turns = max(1, fast * slow // plan.threads)
        loop = ForLoop(e.entry, turns)
        b = loop.frame.builder
        number = b.add(b.mul(loop.index, constant(I64, plan.threads)), self.thread)
        inside: Frame = loop.frame
        branches = []
        if fast * slow < plan.threads:
            branches.append(IfBlock(inside, b.icmp_unsigned("<", number, constant(I64, fast * slow))))
            inside = branches[-1].frame
        b = inside.builder
        quick, other = e.source.loop(fast), e.source.loop(slow)
        for v, value in ((quick, b.urem(number, constant(I64, fast))), (other, b.udiv(number, constant(I64, fast)))):
            e.bind(v, Val((value,), inside))
        lane = e.source.loop(run)
        if run > 1:
            e.bind(lane, Val((constant(I64, 0),), e.entry), run, whole=True)
        along = Expr.of(quick) * run + Expr.of(lane)
        row, column = (along, Expr.of(other)) if p.rows_together else (Expr.of(other), along)
        tests = self._inside(row, column)
        holds = e.mask(tuple(tests))
        if holds is not None:
            branches.append(IfBlock(inside, holds.value))
            inside = branches[-1].frame
        self._write(inside, row, column, pitch, run)
        for branch in reversed(branches):
            branch.close()
        loop.close()

    def _run(self) -> int:
        """Elements that a thread takes together."""
        widest = max(o.shape.dtype.nbytes for o in self.outputs)
        most = 1 if self.problem.rows_together else max(1, _WIDEST // widest)
        return min(self.problem.run, most, self.plan.tile.columns)

    def _inside(self, row: Expr, column: Expr) -> list[InRange]:
        p, tile = self.problem, self.plan.tile
        tests = (
            condition(Expr.of(self.row) * tile.rows + row, 0, p.m),
            condition(Expr.of(self.column) * tile.columns + column, 0, p.n),
        )
        return [t for t in tests if isinstance(t, InRange)]

    def _collected(self, frame: Frame, at: Expr, run: int) -> Val:
        """A run of sums in shared memory."""
        kind, start = self.problem.kind, self.e.split(at)[0].value
        b, shared = frame.builder, self.code.shared(self.e.entry.builder, 0)
        if kind.is_complex:
            return Val(memory.load(b, shared, start, kind, run), frame, run)
        t = memory_type(kind)
        place = b.gep(shared, [start], source_etype=t)
        found = b.load(place, typ=with_lanes(t, run), align=min(_WIDEST, run * kind.nbytes))
        return Val((decode(b, found, kind),), frame, run)

    def _write(self, frame: Frame, row: Expr, column: Expr, pitch: int, run: int) -> None:
        e, p, tile = self.e, self.problem, self.plan.tile
        batch = tuple(Expr.of(v) for v in self.batch)
        total = self._collected(frame, row * pitch + column, run)
        dims = p.product.shape.dims
        first_row, first_column = Expr.of(self.row) * tile.rows, Expr.of(self.column) * tile.columns
        index = p.place(e.source, batch, first_row + row, first_column + column)
        position = linear(index, dims)
        e.known[p.product] = lambda at, mask: convert_element(e, total, p.kind, p.product.shape.dtype)
        found = []
        for o in self.outputs:
            if o.root is None:
                found.append((total, Expr.of(self.part) * p.product.shape.size + position))
                continue
            where = index if o.root.shape.dims == dims else delinearise(e.source, position, o.root.shape.dims)
            found.append((e.value(o.root, where, ()), position))
        for o, (value, at) in zip(self.outputs, found, strict=True):
            start = e.split(at)[0]
            inner = deepest([value, start], frame)
            place = self.function.pointer(o.array)
            memory.store(inner.builder, value.wide(run), place, start.value, o.shape.dtype, None)
