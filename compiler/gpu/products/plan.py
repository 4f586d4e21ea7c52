"""How a product is cut for a GPU: the tile of a block, the warps or threads in it, and the parts of the depth.

The choice depends on shapes, types and the target only, so that results do not depend on the chip that runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.compiler.elements.arithmetic.registers import part_count
from shardc.compiler.gpu.products.problem import ProductProblem
from shardc.compiler.tuning import Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES, DType
from shardc.native.gpu.grid import MMA, Mma
from shardc.native.gpu.target import GpuTarget

__all__ = ["BlockTile", "ProductPlan", "may_round", "plan_product"]


@dataclass(frozen=True, slots=True)
class BlockTile:
    """A block computes ``rows`` x ``columns``, ``depth`` at a time; a thread (a warp, where warps multiply) computes
    ``own_rows`` x ``own_columns`` of it. ``speed``: products per cycle that a multiprocessor does so, of ``blocks``
    blocks that it holds. ``stages`` tiles of the operands are in shared memory, all but one of them on their way."""

    rows: int
    columns: int
    depth: int
    own_rows: int
    own_columns: int
    speed: float
    blocks: int
    stages: int

    @property
    def workers(self) -> int:
        return (self.rows // self.own_rows) * (self.columns // self.own_columns)


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """``splits`` parts of the depth are summed one by one. ``mma``: what warps multiply with (None: threads do).
    Operands lie in shared memory as ``storage``."""

    tile: BlockTile
    splits: int
    mma: Mma | None
    storage: DType
    threads: int


#: Tiles by registers of a sum, for threads that multiply.
_THREAD_TILES = {
    1: (
        BlockTile(128, 128, 8, 8, 8, 100.0, 2, 2),
        BlockTile(64, 64, 16, 4, 4, 75.0, 4, 2),
        BlockTile(16, 128, 16, 2, 4, 50.0, 4, 4),
        BlockTile(128, 16, 16, 4, 2, 50.0, 4, 4),
        BlockTile(32, 32, 32, 2, 2, 40.0, 4, 2),
    ),
    2: (
        BlockTile(64, 64, 16, 4, 4, 50.0, 2, 2),
        BlockTile(16, 128, 16, 2, 4, 30.0, 2, 3),
        BlockTile(128, 16, 16, 4, 2, 30.0, 2, 3),
        BlockTile(32, 32, 16, 2, 2, 25.0, 4, 2),
    ),
    4: (BlockTile(32, 32, 16, 2, 2, 10.0, 2, 2),),
}

#: Tiles for warps that multiply, by bytes of an operand.
_WARP_TILES = {
    2: (
        BlockTile(128, 128, 32, 64, 64, 700.0, 2, 3),
        BlockTile(64, 64, 64, 32, 32, 450.0, 4, 3),
        BlockTile(16, 64, 64, 16, 16, 250.0, 4, 5),
        BlockTile(64, 16, 64, 16, 16, 250.0, 4, 5),
    ),
    4: (
        BlockTile(128, 128, 16, 64, 64, 350.0, 2, 3),
        BlockTile(64, 64, 32, 32, 32, 220.0, 4, 3),
        BlockTile(16, 64, 32, 16, 16, 120.0, 4, 5),
        BlockTile(64, 16, 32, 16, 16, 120.0, 4, 5),
    ),
    8: (BlockTile(64, 64, 16, 32, 32, 50.0, 4, 3), BlockTile(32, 32, 16, 16, 16, 25.0, 4, 3)),
}

#: Parts of the depth that are tried, and the fewest tiles of a part.
_SPLITS, _FEWEST_STEPS = (1, 2, 4, 8, 16, 32, 64), 4
#: Most bytes of scratch memory for sums of parts.
_MOST_SUMS = 64 << 20
#: Cycles of a launch, cycles until what is asked for is there, bytes per cycle and multiprocessor: of the memory that
#: parts are summed up in, and of the caches that tiles come from.
_LAUNCH, _LATENCY, _MEMORY, _CACHES = 5000.0, 900.0, 12.0, 32.0
#: Fewest products that warps multiply: smaller ones are over before that matters.
_WARPS_PAY = 1 << 12


def plan_product(problem: ProductProblem, target: GpuTarget, tuning: Tuning, may_split: bool = True) -> ProductPlan:
    """The cheapest tile and number of parts, by a count of cycles."""
    mma = _warp_product(problem, target, tuning)
    kind = problem.kind
    storage = DTYPES[mma.operand if mma.operand != "tf32" else "f32"] if mma is not None else kind
    tiles = _THREAD_TILES[max(1, kind.nbytes // 4)] if mma is None else _WARP_TILES[storage.nbytes]
    options = [
        (tile, splits)
        for tile in tiles
        for splits in (_SPLITS if may_split else (1,))
        if _useful(problem, target, tile, splits)
    ]
    tile, splits = min(options, key=lambda o: _cycles(problem, target, *o))
    return ProductPlan(tile, splits, mma, storage, tile.workers * (1 if mma is None else target.warp))


def _useful(problem: ProductProblem, target: GpuTarget, tile: BlockTile, splits: int) -> bool:
    """Whether a tile's result fits in shared memory, and each part of the depth has enough work, at an acceptable
    cost."""
    fits = tile.rows * (tile.columns + 4) * problem.kind.nbytes <= target.chip.shared_bytes
    sums = problem.product.shape.size * problem.kind.nbytes * splits
    return fits and (splits == 1 or (_up(problem.k, tile.depth) >= splits * _FEWEST_STEPS and sums <= _MOST_SUMS))


def _cycles(problem: ProductProblem, target: GpuTarget, tile: BlockTile, splits: int) -> float:
    """About how long a product takes.

    A multiprocessor holds some blocks at a time. A step of all of them takes as long as their products, as their tiles
    on the way from the caches, or as the wait for a tile where too few are on their way.
    """
    processors = target.chip.multiprocessors
    blocks = problem.batches * _up(problem.m, tile.rows) * _up(problem.n, tile.columns) * splits
    each = _up(blocks, processors)
    held = min(each, tile.blocks)
    size = problem.left.value.shape.dtype.nbytes + problem.right.value.shape.dtype.nbytes
    nbytes = (tile.rows + tile.columns) * tile.depth * size / 2
    products = tile.rows * tile.columns * tile.depth
    step = max(held * products / tile.speed, held * nbytes / _CACHES, _LATENCY / (tile.stages - 1))
    cycles = _up(each, held) * _up(_up(problem.k, tile.depth), splits) * step
    if splits == 1:
        return cycles
    sums = problem.batches * problem.m * problem.n * problem.kind.nbytes * 2 * splits
    return cycles + _LAUNCH + sums / (processors * _MEMORY)


def _warp_product(problem: ProductProblem, target: GpuTarget, tuning: Tuning) -> Mma | None:
    """The instruction with which warps multiply these types, if there is one."""
    dtypes = {problem.left.value.shape.dtype.name, problem.right.value.shape.dtype.name}
    if target.kind == "amdgpu" or len(dtypes) != 1 or part_count(problem.kind) == 2:
        return None
    (name,) = dtypes
    if name == "f32" and may_round(problem.product, tuning):
        name = "tf32"
    mma = MMA.get(name)
    small = problem.m * problem.n * problem.k < _WARPS_PAY
    return None if mma is None or mma.accumulator != problem.kind.name or small else mma


def may_round(product: Instruction, tuning: Tuning) -> bool:
    """Whether f32 operands may be rounded to tf32."""
    exact = any(p in ("high", "highest") for p in product.attrs.get("operand_precision", ()))
    return tuning.tf32 and not exact


def _up(n: int, size: int) -> int:
    """How many parts of ``size`` hold ``n``."""
    return -(-n // size)
