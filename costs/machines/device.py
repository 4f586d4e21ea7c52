"""Devices as data: what one chip (or one core) can do, as its maker says it, and what is assumed beyond that.

A device is the ``[device]`` part of a machine's description. ``kind`` says how programs are lowered for it: for an
``accelerator`` as the compilers of such chips do, for a ``cpu`` as `shardc.compiler` compiles them. What the numbers
mean for the time of a kernel stands in `shardc.costs.kernels.kernel_model`.

Example::

    [device]
    kind = "accelerator"
    memory_bytes = 80_000_000_000
    memory_bandwidth = 3.35e12
    vector_flops = 67e12
    on_chip_bytes = 50_000_000
    [device.flops]
    bf16 = 989e12
    [device.matrix]
    units = 132
    shape = [64, 8, 16]
    tile = [128, 256]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import InputError
from shardc.hlo.ir.types import DTYPES
from shardc.hlo.known_keys import require_known

__all__ = ["Device", "MatrixUnit", "device_of", "optional_number", "require_fields", "require_positive"]

_KINDS = ("cpu", "accelerator")


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """``units`` that multiply tiles: a product is padded to multiples of ``shape`` (m, n, k).

    ``tile`` is the largest (m, n) of a result that one unit holds; each tile costs ``fill_seconds`` on top of its
    operations, and one with fewer rows or columns than ``narrowest`` takes as long as if it had them, because operands
    have to come. ``share`` of the peak is what well-shaped large products reach.
    """

    units: int = 1
    shape: tuple[int, int, int] = (1, 1, 1)
    tile: tuple[int, int] = (256, 256)
    fill_seconds: float = 0.0
    narrowest: int = 1
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Device:
    """Bytes of memory, bytes per second from it, operations per second of products by element type, and more.

    ``transfers`` is how many collectives may be under way on one kind of links while the device computes; 0 where
    whoever computes does the transfers too. ``queued`` is how many may have begun, those that wait for their turn
    included (0: as many as ``transfers``). ``memory_share`` of the bandwidth is what long streams reach, and each
    kernel waits ``memory_latency`` seconds for its first bytes. ``launch_seconds`` pass from one kernel to the next.
    ``vector_flops`` are simple operations per second on f32 elements (0: as products of f32), ``special_flops`` square
    roots, quotients, exponentials and the like (0: as simple ones). ``on_chip_bytes`` hold parts of operands that are
    read again; scattered rows come in multiples of ``granule_bytes``. ``fused_attention``: kernels exist that never
    write the scores of attention.

    ``flops`` of ``f32`` are for products of full precision; ``f32_high`` and ``f32_default`` for those that JAX calls
    so (``jax.lax.Precision``), on units that then take shorter operands.
    """

    memory_bytes: int
    memory_bandwidth: float
    flops: Mapping[str, float] = field(hash=False)
    transfers: int = 0
    queued: int = 0
    kind: str = "accelerator"
    memory_share: float = 1.0
    memory_latency: float = 0.0
    launch_seconds: float = 0.0
    vector_flops: float = 0.0
    special_flops: float = 0.0
    on_chip_bytes: int = 0
    granule_bytes: int = 0
    fused_attention: bool = False
    matrix: MatrixUnit = field(default_factory=MatrixUnit)

    def peak(self, dtype: str) -> float:
        """Operations per second of products of ``dtype``. A type without a rate has that of the next wider one, or of
        float32; if there is none, the slowest rate."""
        for name in (dtype, *_WIDER.get(dtype, ()), "f32"):
            if name in self.flops:
                return self.flops[name]
        return min(self.flops.values(), default=0.0)


#: Whose rate counts where a type has none.
_WIDER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4m3", "f8e3m4", "f8e8m0fnu"),
            ("f8", "s8", "bf16"),
        ),
        **dict.fromkeys(("s4", "u4", "s2", "u2", "u8"), ("s8", "bf16")),
        "s8": ("bf16",),
        "f4e2m1fn": ("f4", "f8", "s8", "bf16"),
        "f16": ("bf16",),
        "bf16": ("f16",),
        "c128": ("f64",),
        "f32_high": ("f32",),
        "f32_default": ("f32_high", "f32"),
    }
)


#: Names of rates that are no element types: those of all types of 8 or 4 bits, and of precisions of f32.
_RATES = ("f8", "f4", "f32_high", "f32_default")


def require_fields(given: Any, what: type, called: str, where: str, more: Sequence[str] = ()) -> None:
    """Raise `InputError` unless ``given`` is a table whose keys are fields of the class ``what`` or ``more``, or say
    where a number comes from (``source``, ``bandwidth_source``)."""
    require_table(given, called, where)
    require_known(given, [*(f.name for f in fields(what)), *more], called, where, _is_source)


def require_table(given: Any, called: str, where: str) -> None:
    """Raise `InputError` for what is no table."""
    if not isinstance(given, Mapping):
        raise InputError(f"{called} is {given!r}", where=where, fix="write it as a table, with a line key = value each")


def _is_source(key: str) -> bool:
    return key == "source" or key.endswith("_source")


def device_of(given: Mapping[str, Any], where: str) -> Device:
    """The device of a ``[device]`` table; `InputError` for what is missing, unknown or makes no sense."""
    require_fields(given, Device, "a device", where)
    transfers, queued = _count(given, "transfers", where), _count(given, "queued", where)
    if queued and queued < transfers:
        raise InputError(
            f"queued is {queued}, less than the {transfers} transfers that run at a time",
            where=where,
            fix="give at least as many, or omit it",
        )
    kind = given.get("kind", "accelerator")
    if kind not in _KINDS:
        raise InputError(f"unknown device kind {kind!r}", where=where, fix=f"use one of {', '.join(_KINDS)}")
    rates = given.get("flops", {})
    require_table(rates, "flops", where)
    require_known(rates, [*DTYPES, *_RATES], "the table flops", where, _is_source)
    flops = {k: require_positive(rates, k, where) for k in rates if not _is_source(k)}
    if not flops:
        fix = "add a table [device.flops] with operations per second by element type, such as f32 = 67e12"
        raise InputError("the device has no rate of products", where=where, fix=fix)
    return Device(
        memory_bytes=int(require_positive(given, "memory_bytes", where)),
        memory_bandwidth=require_positive(given, "memory_bandwidth", where),
        flops=MappingProxyType(flops),
        transfers=transfers,
        queued=queued,
        kind=kind,
        memory_share=_share(given, "memory_share", where),
        memory_latency=optional_number(given, "memory_latency", where),
        launch_seconds=optional_number(given, "launch_seconds", where),
        vector_flops=optional_number(given, "vector_flops", where),
        special_flops=optional_number(given, "special_flops", where),
        on_chip_bytes=int(optional_number(given, "on_chip_bytes", where)),
        granule_bytes=int(optional_number(given, "granule_bytes", where)),
        fused_attention=_flag(given, "fused_attention", where),
        matrix=_matrix(given.get("matrix", {}), f"{where}, matrix"),
    )


def _flag(given: Mapping[str, Any], key: str, where: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"{key} is {value!r}", where=where, fix=f"write {key} = true or false")
    return value


def _count(given: Mapping[str, Any], key: str, where: str) -> int:
    value = given.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{key} is {value!r}", where=where, fix="give a number of collectives, or 0")
    return value


def require_positive(given: Mapping[str, Any], key: str, where: str, also: str = "") -> float:
    """The positive number called ``key``; `InputError`, which names what ``also`` is allowed, for anything else."""
    if key not in given:
        raise InputError(f"{key} is missing", where=where, fix=f"add {key} = a positive number")
    value = given[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise InputError(f"{key} is {value!r}", where=where, fix=f"give a positive number for {key}{also}")
    return float(value)


def optional_number(given: Mapping[str, Any], key: str, where: str) -> float:
    """The number called ``key``, 0 where it is not given; `InputError` for what is below."""
    return require_positive(given, key, where, ", or 0") if given.get(key, 0) != 0 else 0.0


def _share(given: Mapping[str, Any], key: str, where: str) -> float:
    value = require_positive(given, key, where) if key in given else 1.0
    if value > 1.0:
        raise InputError(f"{key} is {value!r}", where=where, fix="give a fraction between 0 and 1")
    return value


def _matrix(given: Mapping[str, Any], where: str) -> MatrixUnit:
    require_fields(given, MatrixUnit, "a matrix unit", where)
    shape = _sizes(given, "shape", (1, 1, 1), where)
    tile = _sizes(given, "tile", (256, 256), where)
    return MatrixUnit(
        int(require_positive(given, "units", where)) if "units" in given else 1,
        (shape[0], shape[1], shape[2]),
        (tile[0], tile[1]),
        optional_number(given, "fill_seconds", where),
        int(require_positive(given, "narrowest", where)) if "narrowest" in given else 1,
        _share(given, "share", where),
    )


def _sizes(given: Mapping[str, Any], key: str, default: tuple[int, ...], where: str) -> tuple[int, ...]:
    value = given.get(key, list(default))
    if (
        not isinstance(value, list)
        or len(value) != len(default)
        or not all(isinstance(n, int) and n > 0 for n in value)
    ):
        raise InputError(f"{key} is {value!r}", where=where, fix=f"give {len(default)} positive whole numbers")
    return tuple(value)
