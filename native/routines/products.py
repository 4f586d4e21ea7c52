"""Matrix products of any sizes: sums of a few rows and a vector of columns stay in registers until they are complete.

A product's terms are added one after another, as in kernels of one size, so the results are the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from llvmlite import ir

from shardc.native.llvm.flow import at_byte, counted, least, number, row_of
from shardc.native.llvm.jit import TargetModule, new_module
from shardc.native.llvm.target import Target
from shardc.native.math.vector import F32, F64, I32, I64, PTR, constant, intrinsic, splat, vector_constant, zero
from shardc.native.routines.records import ProductCall

__all__ = ["ROWS", "lanes", "products_module"]

#: Rows whose sums are kept at the same time.
ROWS = 4

_KINDS: Mapping[str, tuple[ir.Type, int]] = MappingProxyType(
    {"shardc_product_f32": (F32, 4), "shardc_product_f64": (F64, 8)}
)

#: What a call says of the operands.
_SIZES = (
    "batches", "rows", "columns", "depth", "to_batch", "to_row", "left_batch", "left_row", "left_depth", "right_batch",
    "right_depth",
)  # fmt: skip


def lanes(target: Target, nbytes: int) -> int:
    """Columns of elements of ``nbytes`` that are computed together."""
    return target.vector_bits // (8 * nbytes)


def products_module(target: Target) -> TargetModule:
    """The functions ``void shardc_product_f32(ptr call, ptr to, ptr left, ptr right)`` and ``..._f64``; `ProductCall`
    says what they compute."""
    module = new_module("products", target)
    for name, (t, nbytes) in _KINDS.items():
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR] * 4), name)
        function.attributes.add("nounwind")
        _Product(function, t, nbytes, lanes(target, nbytes)).emit()
    return module


class _Product:
    def __init__(self, function: ir.Function, t: ir.Type, nbytes: int, width: int) -> None:
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.call, self.to, self.left, self.right = function.args
        self.t, self.nbytes, self.width = t, nbytes, width
        self.vector = ir.VectorType(t, width)
        self.sizes = {name: self._size(name) for name in _SIZES}

    def emit(self) -> None:
        b, sizes = self.b, self.sizes
        rows, columns = sizes["rows"], sizes["columns"]
        numbers = vector_constant(range(self.width), I64)
        with counted(b, number(0), sizes["batches"]) as batch:
            to, left, right = (
                self._behind(getattr(self, side), b.mul(batch, sizes[f"{side}_batch"]))
                for side in ("to", "left", "right")
            )
            with counted(b, number(0), columns, self.width) as column:
                rest = splat(b, b.sub(columns, column), self.width)
                mask = b.icmp_signed("<", numbers, rest)
                with counted(b, number(0), rows, ROWS) as row:
                    # Rows behind the last are the last once more.
                    last = b.sub(rows, number(1))
                    block = [least(b, b.add(row, number(k)), last) for k in range(ROWS)]
                    starts = [self._behind(left, b.mul(r, sizes["left_row"])) for r in block]
                    sums = self._sums(starts, self._behind(right, column), mask)
                    for r, total in zip(block, sums, strict=True):
                        place = self._behind(self._behind(to, b.mul(r, sizes["to_row"])), column)
                        arguments = [total, place, constant(I32, self.nbytes), mask]
                        intrinsic(b, "llvm.masked.store", ir.VoidType(), arguments)
        b.ret_void()

    def _sums(self, lefts: list[ir.Value], right: ir.Value, mask: ir.Value) -> list[ir.Value]:
        """Of a block of rows, over the whole depth, which is not empty."""
        b = self.b
        before, loop, done = b.block, b.append_basic_block("depth"), b.append_basic_block("sums")
        b.branch(loop)
        b.position_at_end(loop)
        depth = b.phi(I64)
        sums = [b.phi(self.vector) for _ in lefts]
        place = self._behind(right, b.mul(depth, self.sizes["right_depth"]))
        arguments = [place, constant(I32, self.nbytes), mask, zero(self.vector)]
        line = intrinsic(b, "llvm.masked.load", self.vector, arguments)
        offset = b.mul(depth, self.sizes["left_depth"])
        found = []
        for start, total in zip(lefts, sums, strict=True):
            factor = splat(b, row_of(b, start, offset, self.t), self.width)
            found.append(intrinsic(b, "llvm.fmuladd", self.vector, [factor, line, total]))
            total.add_incoming(zero(self.vector), before)
            total.add_incoming(found[-1], loop)
        following = b.add(depth, number(1))
        depth.add_incoming(number(0), before)
        depth.add_incoming(following, loop)
        b.cbranch(b.icmp_signed("<", following, self.sizes["depth"]), loop, done)
        b.position_at_end(done)
        return found

    def _size(self, field: str) -> ir.Value:
        return self.b.load(at_byte(self.b, self.call, number(ProductCall.offset_of(field))), typ=I64)

    def _behind(self, base: ir.Value, elements: ir.Value) -> ir.Value:
        return self.b.gep(base, [elements], source_etype=self.t)
