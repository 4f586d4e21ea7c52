"""What may fuse, what it costs: the facts that `fuse` decides by."""

from __future__ import annotations

import math

from shardc.compiler.lower.expand.expand_one_per_row import gather_by_rows
from shardc.costs.ops.table import OP_COSTS
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS

__all__ = [
    "block_offset",
    "is_alias",
    "is_block",
    "is_cheap",
    "is_duplicable",
    "is_elementwise",
    "is_fusable",
    "is_index_part",
    "is_lookup",
    "is_movement",
    "is_pointwise",
    "is_positional",
    "is_sample",
    "is_stack",
    "is_uniform",
    "long_dims",
    "moved_operands",
    "needs_no_memory",
    "new_part",
    "reads_in_place",
    "repetition",
]

#: Elementwise by family, but not one element from one element.
_NOT_FUSABLE = frozenset({"map", "stochastic-convert", "copy"})

#: Ops that read elements of their operands at other indices.
_MOVEMENT = frozenset({"broadcast", "reshape", "transpose", "slice", "pad", "reverse", "dynamic-slice", "concatenate"})

#: Most operands of a concatenation inside a kernel, whose code has a part for each.
_MOST_JOINED = 8

#: Most parts of a stack, and the least bytes of one that lie together in memory: a line.
_MOST_STACKED, _LINE = 32, 64

#: Ops without array operands.
_SOURCES = frozenset({"iota", "constant"})

#: Movement that may be repeated in every reader: it costs no more than reading the value would.
_REPEATABLE = frozenset({"broadcast", "reshape", "slice", "iota"})


def is_elementwise(i: Instruction) -> bool:
    """One element of each operand gives one element of the result."""
    if i.opcode == "bitcast-convert":
        return i.shape.dims == i.operands[0].shape.dims
    return OPS[i.opcode].family == "elementwise" and i.opcode not in _NOT_FUSABLE and i.shape.is_array


def is_pointwise(i: Instruction) -> bool:
    """Whether each element is a function of elements of the operands, with the same bits in whatever kernel computes
    it.

    Only such values are computed twice: sums come out differently in kernels that cut them up differently.
    """
    return i.opcode in _MOVEMENT or i.opcode in _SOURCES or i.opcode == "parameter" or is_elementwise(i)


def is_fusable(i: Instruction) -> bool:
    """Whether the instruction may be part of a fused kernel."""
    if not i.shape.is_array:
        return False
    if i.opcode == "constant":
        return not i.shape.dims
    if i.opcode == "concatenate" and len(i.operands) > _MOST_JOINED:
        return False
    if i.opcode == "dynamic-update-slice":
        return _is_placed(i)
    known = i.opcode in _MOVEMENT or i.opcode in _SOURCES or i.opcode == "reduce"
    return known or is_elementwise(i) or is_lookup(i)


def is_stack(i: Instruction) -> bool:
    """Parts of one shape, joined, each in lines of its own: one loop nest may write an element of every part at a time.

    As the root of a kernel, that is; what reads an element of it needs that of one part.
    """
    if i.opcode != "concatenate" or not 1 < len(i.operands) <= _MOST_STACKED:
        return False
    (d,) = i.attrs["dimensions"]
    part = i.operands[0].shape
    together = math.prod(part.dims[d:]) * part.dtype.nbytes
    return together >= _LINE and all(o.shape.dims == part.dims for o in i.operands)


def is_lookup(i: Instruction) -> bool:
    """A gather of one element of a table for each element of the result, whose index may be computed on the way.

    Those of one element per row are selections in the kernel that makes the rows.
    """
    return i.opcode == "gather" and not i.attrs["offset_dims"] and gather_by_rows(i) is None


def long_dims(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Without dimensions of one element."""
    return tuple(n for n in dims if n != 1)


def reads_in_place(i: Instruction, operand: Instruction) -> bool:
    """Whether each element of the result reads its own element of an operand. Both have the same dimensions, those of
    size 1 left out."""
    if is_elementwise(i):
        return True
    return is_lookup(i) and operand is i.operands[1] and long_dims(operand.shape.dims) == long_dims(i.shape.dims)


def is_index_part(part: Instruction, index: Instruction, i: Instruction) -> bool:
    """Whether each element of ``i``, a lookup by the joined ``index``, reads its own element of this ``part`` of it."""
    last = index.attrs["dimensions"] == (i.attrs["index_vector_dim"],) if is_lookup(i) else False
    return last and index is i.operands[1] and long_dims(part.shape.dims) == long_dims(i.shape.dims)


def _is_placed(i: Instruction) -> bool:
    """Parts put on a uniform ground: a pad whose widths are known at run time. Nothing is updated in place then."""
    ground = i
    for _ in range(_MOST_JOINED):
        if ground.opcode != "dynamic-update-slice":
            break
        ground = ground.operands[0]
    return is_uniform(ground)


def new_part(i: Instruction) -> Instruction | None:
    """What is written over a part of operand 0, by ops (or fusions of them) that keep the rest; None for others."""
    if i.opcode == "fusion":
        root = i.attrs["calls"].root
        return new_part(root) if root.operands and root.operands[0].opcode == "parameter" else None
    if i.opcode == "scatter":
        return i.operands[2] if len(i.operands) == 3 else None
    return i.operands[1] if i.opcode == "dynamic-update-slice" and not _is_placed(i) else None


def is_alias(i: Instruction) -> bool:
    """The result is the operand's memory, read with other dimensions."""
    return i.opcode == "reshape" or (
        i.opcode == "bitcast"
        and i.shape.size == i.operands[0].shape.size
        and i.shape.nbytes == i.operands[0].shape.nbytes
    )


def is_block(i: Instruction) -> bool:
    """A slice whose elements lie together in memory, one after the other. Example: a row of a matrix."""
    if i.opcode != "slice" or any(step != 1 for _, _, step in i.attrs["slice"]):
        return False
    cut = [d for d, (n, m) in enumerate(zip(i.shape.dims, i.operands[0].shape.dims, strict=True)) if n != m]
    return all(n == 1 for n in i.shape.dims[: max(cut, default=0)])


def block_offset(i: Instruction) -> int:
    """Where an `is_block` slice begins in its operand, in bytes."""
    offset = 0
    for (start, _, _), n in zip(i.attrs["slice"], i.operands[0].shape.dims, strict=True):
        offset = offset * n + start
    return offset * i.shape.dtype.nbytes


def is_cheap(i: Instruction) -> bool:
    """Computing it again costs about as much as loading it."""
    return OP_COSTS[i.opcode].kind == "simple" and i.opcode not in ("reduce", "gather")


def is_duplicable(i: Instruction) -> bool:
    """Whether several kernels may each compute the value for itself, without reading more than its result."""
    if i.opcode in _REPEATABLE or i.opcode == "constant":
        return True
    if i.opcode == "convert":
        return i.shape.dtype.nbytes > i.operands[0].shape.dtype.nbytes
    return needs_no_memory(i, 6) or _is_cheap_function_of_few(i)


def _is_cheap_function_of_few(i: Instruction) -> bool:
    """Arithmetic on at most one array, and on broadcasts of less: reading these costs no more than reading the result
    would. Example: the differences of all pairs of positions."""
    if not is_elementwise(i) or not is_cheap(i) or i.opcode == "convert" or not i.shape.dims:
        return False
    arrays = {o for o in i.operands if not _is_spread(o)}
    return len(arrays) <= 1 and all(o.shape.dtype.nbytes <= i.shape.dtype.nbytes for o in arrays)


def _is_spread(i: Instruction) -> bool:
    """A broadcast of so few elements that reading them costs nothing beside the result's."""
    return i.opcode == "broadcast" and i.operands[0].shape.size * 8 <= i.shape.size


def is_movement(i: Instruction) -> bool:
    """Data movement that costs nothing where it is read."""
    return i.opcode in _REPEATABLE or i.opcode in _SOURCES


def is_uniform(i: Instruction) -> bool:
    """The same at every index."""
    return i.opcode == "broadcast" and not i.operands[0].shape.dims


def is_positional(i: Instruction) -> bool:
    """A comparison of positions with a number: inside a kernel it is decided while code is made."""
    return i.opcode == "compare" and i.operands[0].opcode == "iota" and is_uniform(i.operands[1])


def is_sample(i: Instruction) -> bool:
    """A slice of so few elements (a halo, say) that computing them again costs less than storing the whole."""
    return i.opcode == "slice" and i.shape.size * 8 <= i.operands[0].shape.size


def needs_no_memory(i: Instruction, depth: int) -> bool:
    """A cheap function of indices and constants, such as a causal mask."""
    if i.opcode in ("iota", "constant"):
        return i.opcode == "iota" or not i.shape.dims
    if depth == 0 or not is_fusable(i) or not is_cheap(i) or i.opcode == "dynamic-slice":
        return False
    return all(needs_no_memory(o, depth - 1) for o in i.operands)


def moved_operands(i: Instruction) -> tuple[Instruction, ...]:
    """Operands that a fused kernel reads per element (and may compute itself)."""
    if i.opcode == "dynamic-slice":
        return i.operands[:1]
    if i.opcode == "dynamic-update-slice":
        return i.operands[:2]
    if i.opcode == "reduce":
        return i.operands[: len(i.operands) // 2]
    if i.opcode == "gather":
        return i.operands[1:] if i.operands[0] is not i.operands[1] else ()
    return i.operands


def repetition(i: Instruction, operand: Instruction) -> float:
    """How often one evaluation of ``i`` evaluates ``operand``."""
    if i.opcode in ("concatenate", "gather"):
        return i.operands.count(operand) * operand.shape.size / max(i.shape.size, 1)
    if i.opcode != "reduce":
        return 1.0
    return float(math.prod(i.operands[0].shape.dims[d] for d in i.attrs["dimensions"]))
