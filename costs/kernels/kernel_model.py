"""How long a kernel takes on a described device: arithmetic and memory traffic side by side, whichever is more.

A product goes through the matrix unit in tiles. What it loses there follows from sizes: dimensions are padded to the
unit's shape, tiles are dealt to units in waves of which the last may be partly empty, each tile begins with an empty
pipeline, and a narrow tile waits for its operands. Operands that do not fit on the chip are read again by each block
of the result (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). Of all ways to cut a
product the fastest counts, as compilers and libraries try several. All else runs on the vector unit, beside the matrix
unit. Memory gives a share of its bandwidth after a first wait (Williams, Waterman and Patterson, "Roofline", 2009).

The same rules hold for every device; only the numbers of `shardc.costs.machines.device` differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from shardc.costs.machines.device import Device
from shardc.costs.ops.op_cost import MatrixProduct

__all__ = [
    "KernelTime",
    "KernelWork",
    "busy_seconds",
    "kernel_seconds",
    "product_bytes",
    "product_seconds",
    "vector_seconds",
]

#: What one operation of a class takes: simple operations and special functions. The others are a few special functions
#: and polynomials around them (assumption).
_COSTS: Mapping[str, tuple[float, float]] = MappingProxyType({"simple": (1, 0), "special": (2, 1), "long": (12, 2)})

#: The widest and narrowest elements that the vector unit handles at a rate of their own.
_WIDE = ("f64", "c128")

#: How many units may share one tile's contracted dimension.
_SPLITS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class KernelWork:
    """What one execution of a kernel has to do.

    ``operations`` are (class, number) of the vector unit; of the ``read`` and ``written`` bytes, ``rows`` says (number,
    bytes of each) of those that lie scattered. ``launches`` follow one another. ``flops`` are as reports count them.
    ``chained``: products read what was computed from products, so that the units wait for each other.
    """

    products: tuple[MatrixProduct, ...] = ()
    operations: tuple[tuple[str, float], ...] = ()
    read: int = 0
    written: int = 0
    dtype: str = "f32"
    rows: tuple[tuple[int, int], ...] = ()
    launches: int = 1
    flops: int = 0
    chained: bool = False


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds, what they are spent on (``"compute"``, ``"memory"`` or ``"launch"``), and the part of that resource's
    peak that is reached: of the operations per second, or of the bandwidth; of a launch, of the operations."""

    seconds: float
    limit: str
    efficiency: float


def kernel_seconds(device: Device, work: KernelWork) -> KernelTime:
    """The time of one execution of ``work`` alone on ``device``; nothing to do takes no time.

    Example: on a device of 1e12 operations and bytes per second, a product of 2e12 operations on 4e12 bytes takes four
    seconds, limited by ``memory`` at an efficiency of 1.
    """
    compute, memory = _busy(device, work)
    if not compute and not memory:
        return KernelTime(0.0, "launch", 0.0)
    waiting = work.launches * (device.launch_seconds + device.memory_latency)
    seconds = waiting + max(compute, memory)
    limit = max((waiting, "launch"), (memory, "memory"), (compute, "compute"))[1]
    moved = (work.read + work.written) / device.memory_bandwidth
    best = moved if limit == "memory" else _at_peak(device, work)
    return KernelTime(seconds, limit, best / seconds)


def busy_seconds(device: Device, work: KernelWork) -> float:
    """The same without the wait for its beginning, for work that may become part of a larger kernel."""
    return max(_busy(device, work))


def _busy(device: Device, work: KernelWork) -> tuple[float, float]:
    """Seconds of arithmetic and of memory traffic. Matrix and vector unit work side by side where there are both and
    neither needs the other's results."""
    matrix = sum(product_seconds(device, p) for p in work.products)
    vector = vector_seconds(device, work)
    compute = max(matrix, vector) if device.vector_flops and not work.chained else matrix + vector
    nbytes = work.read + work.written + _rounding(device, work) + sum(product_bytes(device, p) for p in work.products)
    return compute, nbytes / (device.memory_bandwidth * device.memory_share)


def _at_peak(device: Device, work: KernelWork) -> float:
    """Seconds of its arithmetic, were all units always busy."""
    products = sum(p.flops / _peak(device, p) for p in work.products)
    return products or vector_seconds(device, work)


def vector_seconds(device: Device, work: KernelWork) -> float:
    """Seconds of what is not a product. Devices without numbers for it take one operation for another."""
    if not device.vector_flops:
        rate = device.peak(work.dtype)
        return sum(count for _, count in work.operations) / rate if rate else 0.0
    simple = sum(_COSTS[kind][0] * n for kind, n in work.operations)
    special = sum(_COSTS[kind][1] * n for kind, n in work.operations)
    return _wide(device, work.dtype) * (
        simple / device.vector_flops + special / (device.special_flops or device.vector_flops)
    )


def _wide(device: Device, dtype: str) -> float:
    """How many times longer elements of twice the width take."""
    return device.peak("f32") / device.peak("f64") if dtype in _WIDE and "f64" in device.flops else 1.0


def _rounding(device: Device, work: KernelWork) -> int:
    """Bytes that come along with scattered rows."""
    grain = device.granule_bytes
    return sum(count * (-(-nbytes // grain) * grain - nbytes) for count, nbytes in work.rows) if grain else 0


def _peak(device: Device, product: MatrixProduct) -> float:
    return device.peak(product.rate) or float("inf")


# -- products ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def product_seconds(device: Device, product: MatrixProduct) -> float:
    """Seconds in the matrix unit, operands coming as fast as it takes them; in the vector unit where that is less, as
    for products of each channel alone."""
    if not product.flops:
        return 0.0
    unit = device.matrix
    rate = _peak(device, product) * unit.share / unit.units
    depth = unit.shape[2]
    best = _multiply_adds(device, product)
    for rows, columns in ((product.m, product.n), (product.n, product.m)):
        for tile_rows in _tiles(unit.shape[0], unit.tile[0]):
            for tile_columns in _tiles(unit.shape[1], unit.tile[1]):
                tiles = product.batch * -(-rows // tile_rows) * -(-columns // tile_columns)
                area = max(tile_rows, unit.narrowest) * max(tile_columns, unit.narrowest)
                one = 2 * product.terms * area / rate
                for parts in _SPLITS:
                    waves = -(-tiles * parts // unit.units)
                    length = -(-product.k // (parts * depth)) * depth
                    best = min(best, waves * (length * one + unit.fill_seconds * (1 + (parts > 1))))
    return best


def _multiply_adds(device: Device, product: MatrixProduct) -> float:
    """Seconds in the vector unit, one operation for a multiplication and an addition."""
    if not device.vector_flops:
        return float("inf")
    return _wide(device, product.rate) * product.flops / 2 / device.vector_flops


def _tiles(least: int, most: int) -> Iterator[int]:
    while least <= max(least, most):
        yield least
        if least >= most:
            return
        least *= 2


@lru_cache(maxsize=65536)
def product_bytes(device: Device, product: MatrixProduct) -> int:
    """Bytes of operands that are read more than once, because neither they nor the result fit on the chip."""
    room = device.on_chip_bytes // 2  # the other half holds what comes next
    left, right = product.m * product.k * product.sizes[0], product.k * product.n * product.sizes[1]
    if not room or min(left, right) <= room:
        return 0
    area = max(1, room // 4)  # sums are kept in four bytes
    best, rows = left * product.n + right * product.m, 1
    while rows <= area:
        again = left * (-(-product.n // (area // rows)) - 1) + right * (-(-product.m // rows) - 1)
        best = min(best, again)
        rows *= 2
    return product.batch * best
