"""Matrix products: through BLAS in tiles, or loops of our own for integers and tiny products."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.function import emit_elements
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.products.blas_calls import gemm_type, scale
from shardc.compiler.cpu.products.grid import grid
from shardc.compiler.cpu.products.registers import emit_in_registers, fits_registers, register_pieces
from shardc.compiler.cpu.products.tiles import DotKernel, emit_product, tile_pieces
from shardc.compiler.elements.affine import Mask
from shardc.compiler.elements.dot_sides import DotSides
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.lower.fuse.row_space import roots_of
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType, Shape, array_shape
from shardc.native.llvm.blas import SMALL
from shardc.native.llvm.target import Target

__all__ = ["convert_all", "emit_dot", "emit_fused_dot", "gemm_type", "product_pieces", "scale"]


def emit_dot(kernel: CpuKernel) -> None:
    """A dot by itself."""
    i = kernel.instruction
    kind = gemm_type(i) or i.shape.dtype
    leaves = [Instruction("parameter", o.shape, attrs={"index": n}) for n, o in enumerate(i.operands)]
    dot = i.replace(operands=tuple(leaves))
    product = DotKernel(dot, (0, 1), leaves, [dot])
    empty = any(0 in s.dims for s in (i.shape, *(o.shape for o in i.operands)))
    in_library = gemm_type(i) is not None and DotSides(i).work >= SMALL
    if not empty and (in_library or fits_registers(product, kind)):
        _emit(kernel, product, kind)
    else:
        emit_elements(kernel)


def product_pieces(dot: Instruction, target: Target, tuning: Tuning = DEFAULT) -> int:
    """Into how many pieces a kernel for ``dot``, alone or fused, cuts it: what more threads than that cannot help."""
    kind = gemm_type(dot) or dot.shape.dtype
    leaves = [Instruction("parameter", o.shape, attrs={"index": n}) for n, o in enumerate(dot.operands)]
    plain = dot.replace(operands=tuple(leaves))
    sides = DotSides(plain)
    if fits_registers(DotKernel(plain, (0, 1), leaves, [plain]), kind):
        return register_pieces(sides, tuning)
    matrices = [
        side.as_it_lies() if leaf.shape.dtype is kind else None
        for leaf, side in zip(leaves, (sides.left, sides.right), strict=True)
    ]
    return tile_pieces(sides, grid(sides, kind, target, tuning, *matrices), tuning)


def _emit(kernel: CpuKernel, product: DotKernel, kind: DType) -> None:
    (emit_in_registers if fits_registers(product, kind) else emit_product)(kernel, product, kind)


def emit_fused_dot(kernel: CpuKernel) -> None:
    """A fusion of one dot, whose operands are parameters, and elementwise instructions (`FuseProducts`)."""
    computation = kernel.instruction.attrs["calls"]
    (dot,) = (i for i in computation if i.opcode == "dot")
    kind = gemm_type(dot)
    assert kind is not None
    numbers = (dot.operands[0].attrs["index"], dot.operands[1].attrs["index"])
    _emit(kernel, DotKernel(dot, numbers, computation.parameters, list(roots_of(computation))), kind)


def convert_all(e: CpuEmitter, source: ir.Value, kind: DType, target: ir.Value, shape: Shape) -> None:
    """Element by element from the product's type to the result's."""
    value = Instruction("parameter", array_shape(kind, *shape.dims), attrs={"index": 0})
    inner = e.with_leaf(value, source)

    def element(e: Elements, index: Index, mask: Mask) -> object:
        return convert_element(e, e.value(value, index, mask), kind, shape.dtype)

    emit_map(inner, shape.dims, [MapOutput(target, shape, element)])
