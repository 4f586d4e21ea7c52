"""A ragged-dot in blocks of rows: a loop in which each block meets the one matrix of its group.

The general form multiplies every row with every group's matrix. Here m rows in g groups are cut into at most
m / B + g blocks of B rows, none of which spans two groups. So the work is (m + g B) k n instead of m g k n, and nothing
of m g elements is stored. Rows beyond the end of a group are computed in its last block, too, and left out.
"""

from __future__ import annotations

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.types import Shape, array_shape

__all__ = ["pays_in_blocks", "ragged_in_blocks"]

#: Rows of a block: what a product with one matrix needs to be about as fast as a long one.
_BLOCK = 64


def pays_in_blocks(i: Instruction) -> bool:
    """Whether ``i`` is a product of matrices without batches, long enough that blocks compute at most half as much."""
    lhs, rhs, sizes = (o.shape for o in i.operands)
    plain = lhs.rank == 2 and sizes.rank == 1 and not i.attrs.get("lhs_batch_dims")
    contracts = i.attrs["lhs_ragged_dims"][0] in i.attrs.get("lhs_contracting_dims", ())
    if not plain or rhs.rank != (2 if contracts else 3):
        return False
    groups, rows = sizes.dims[0], lhs.dims[i.attrs["lhs_ragged_dims"][0]]
    return bool(rows >= _BLOCK and 2 * (rows + groups * _BLOCK) <= rows * groups)


def ragged_in_blocks(i: Instruction) -> Computation:
    """The loop over blocks; its state is a counter, the tables, both sides and the result so far."""
    p = Operations(i)
    lhs, rhs, sizes = p.parameters
    given = i.shape.dtype.name
    if given in ("bf16", "f16"):  # blocks of a group add up
        i = i.replace(shape=i.shape.with_dtype("f32"))
    groups, rows = sizes.shape.dims[0], lhs.shape.dims[i.attrs["lhs_ragged_dims"][0]]
    blocks = rows // _BLOCK + groups
    tables = _tables(p, p.convert(sizes, "s32"), groups, blocks)
    counter, result = p.full(0, array_shape("s32")), p.full(0, i.shape)
    state = p.op("tuple", counter, *tables, lhs, rhs, result)
    loop = p.op("while", state, condition=_condition(state.shape, blocks), body=_body(i, state.shape))
    return p.build(p.convert(p.element(loop, len(state.operands) - 1), given))


def _tables(p: Operations, sizes: Instruction, groups: int, blocks: int) -> tuple[Instruction, ...]:
    """By block: its group, its first row, and the row behind its last. Blocks that are not needed have no rows."""
    each = p.op("divide", p.op("add", sizes, p.full(_BLOCK - 1, sizes.shape)), p.full(_BLOCK, sizes.shape))
    ends, block_ends = (_running(p, x, groups) for x in (sizes, each))
    grid = (blocks, groups)
    number = p.iota("s32", grid, 0)
    passed = p.convert(p.compare("GE", number, p.spread(block_ends, grid, (1,))), "s32")
    group = _sum(p, passed)
    here = p.compare("EQ", p.iota("s32", grid, 1), p.spread(group, grid, (0,)))

    def pick(x: Instruction) -> Instruction:
        """The group's value by block; 0 where there is no group."""
        return _sum(p, p.op("select", here, p.spread(x, grid, (1,)), p.full(0, array_shape("s32", *grid))))

    inside = p.op("subtract", p.iota("s32", (blocks,), 0), pick(p.op("subtract", block_ends, each)))
    first = p.op("multiply", inside, p.full(_BLOCK, inside.shape))
    first = p.op("add", first, pick(p.op("subtract", ends, sizes)))
    behind = p.op("minimum", p.op("add", first, p.full(_BLOCK, first.shape)), pick(ends))
    return group, first, behind


def _running(p: Operations, x: Instruction, count: int) -> Instruction:
    """Sums up to and with each element."""
    grid = (count, count)
    before = p.compare("LE", p.iota("s32", grid, 1), p.iota("s32", grid, 0))
    return _sum(p, p.op("select", before, p.spread(x, grid, (1,)), p.full(0, array_shape("s32", *grid))))


def _sum(p: Operations, x: Instruction) -> Instruction:
    """Over the last dimension."""
    zero = p.full(0, array_shape("s32"))
    return p.op("reduce", x, zero, dimensions=(1,), to_apply=binary_computation("add", "s32"))


def _condition(state: Shape, blocks: int) -> Computation:
    b = Builder("blocks_condition")
    counter = b.add("get-tuple-element", b.parameter(state), index=0)
    return b.build(b.add("compare", counter, b.constant(blocks, "s32"), direction="LT"))


def _body(i: Instruction, state: Shape) -> Computation:
    b = Builder("blocks_body", metadata=i.metadata, origin=i.origin)
    parameter = b.parameter(state)
    values = [b.add("get-tuple-element", parameter, index=k) for k in range(len(state.elements))]
    counter, *tables, lhs, rhs, result = values
    one = [b.add("dynamic-slice", t, counter, dynamic_slice_sizes=(1,)) for t in tables]
    group, first, behind = (b.add("reshape", x, shape=array_shape("s32")) for x in one)
    block = _RowBlock(b, i, first, behind)
    contracts = i.attrs["lhs_ragged_dims"][0] in i.attrs["lhs_contracting_dims"]
    new = block.contracted(group, lhs, rhs, result) if contracts else block.of_rows(group, lhs, rhs, result)
    following = b.add("add", counter, b.constant(1, "s32"))
    return b.build(b.add("tuple", following, *tables, lhs, rhs, new))


class _RowBlock:
    """One block: rows from ``first`` to ``behind``, which lie in the `_BLOCK` rows from ``start`` on."""

    def __init__(self, b: Builder, i: Instruction, first: Instruction, behind: Instruction) -> None:
        self.b, self.i, self.first, self.behind = b, i, first, behind
        self.ragged: int = i.attrs["lhs_ragged_dims"][0]
        rows = i.operands[0].shape.dims[self.ragged]
        low, high = b.constant(0, "s32"), b.constant(rows - _BLOCK, "s32")
        self.start = b.add("clamp", low, first, high)

    def of_rows(self, group: Instruction, lhs: Instruction, rhs: Instruction, result: Instruction) -> Instruction:
        """The rows of the result become the product with the group's matrix."""
        (axis,) = self.i.attrs["rhs_group_dims"]
        matrix = self._part(rhs, axis, group, 1)
        dims = (*rhs.shape.dims[:axis], *rhs.shape.dims[axis + 1 :])
        matrix = self.b.add("reshape", matrix, shape=rhs.shape.plain.with_dims(dims))
        (contract,) = self.i.attrs["rhs_contracting_dims"]
        product = self._dot(self._part(lhs, self.ragged, self.start, _BLOCK), matrix, contract - (contract > axis))
        old = self._part(result, 0, self.start, _BLOCK)
        new = self.b.add("select", self._mine(product.shape, 0), product, old)
        return self.b.add("dynamic-update-slice", result, new, self.start, self.b.constant(0, "s32"))

    def contracted(self, group: Instruction, lhs: Instruction, rhs: Instruction, result: Instruction) -> Instruction:
        """The group's matrix of the result grows by the product over the rows. Other rows are zero on both sides."""
        (contract,) = self.i.attrs["rhs_contracting_dims"]

        def cleared(x: Instruction, axis: int) -> Instruction:
            part = self._part(x, axis, self.start, _BLOCK)
            zero = self.b.constant(0, part.shape.dtype, part.shape.dims)
            return self.b.add("select", self._mine(part.shape, axis), part, zero)

        product = self._dot(cleared(lhs, self.ragged), cleared(rhs, contract), contract)
        old = self._part(result, 0, group, 1)
        new = self.b.add("add", old, self.b.add("reshape", product, shape=old.shape))
        return self.b.add("dynamic-update-slice", result, new, group, *[self.b.constant(0, "s32")] * 2)

    def _part(self, x: Instruction, axis: int, at: Instruction, size: int) -> Instruction:
        zero = self.b.constant(0, "s32")
        starts = [at if d == axis else zero for d in range(x.shape.rank)]
        sizes = tuple(size if d == axis else n for d, n in enumerate(x.shape.dims))
        return self.b.add("dynamic-slice", x, *starts, dynamic_slice_sizes=sizes)

    def _mine(self, shape: Shape, axis: int) -> Instruction:
        """Whether each row of a block of ``shape`` is one of the group's."""
        b, dims = self.b, shape.dims
        row = b.add("iota", shape=array_shape("s32", *dims), iota_dimension=axis)
        first, behind, start = (
            b.add("broadcast", x, shape=array_shape("s32", *dims), dimensions=())
            for x in (self.first, self.behind, self.start)
        )
        row = b.add("add", row, start)
        return b.add("and", b.add("compare", row, first, direction="GE"), b.add("compare", row, behind, direction="LT"))

    def _dot(self, left: Instruction, right: Instruction, contract: int) -> Instruction:
        (own,) = self.i.attrs["lhs_contracting_dims"]
        dims = (left.shape.dims[1 - own], right.shape.dims[1 - contract])
        shape = Shape(self.i.shape.dtype, dims)
        return self.b.add(
            "dot", left, right, shape=shape, lhs_contracting_dims=(own,), rhs_contracting_dims=(contract,)
        )
