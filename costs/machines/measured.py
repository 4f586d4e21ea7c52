"""What `shardc calibrate` found out about a computer, as data: rates of kernels, curves of collectives, costs of steps.

It is the ``[measured]`` part of a machine's description. Seconds are of one device; how many devices computed at the
same time, and on how many threads each, says the `Rates`. Nothing here knows how the numbers were taken or how the
time of a program follows from them (`shardc.compiler.times.host_times`,
`shardc.costs.network.measured_collectives`).
"""

from __future__ import annotations

import bisect
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from shardc.costs.machines.device import require_fields
from shardc.hlo.errors import InputError
from shardc.hlo.units import count_text
from shardc.native.threads.cores import usable_cores

__all__ = [
    "RANKS",
    "VIRTUAL",
    "CollectiveCurve",
    "Measured",
    "Points",
    "Rates",
    "StepCost",
    "cpu_name",
    "interpolate",
    "read_measured_table",
    "this_machine_path",
]

#: Devices are MPI ranks of the computer, or virtual ones of one process.
RANKS, VIRTUAL = "ranks", "virtual"

#: (size, value), sizes ascending.
Points = tuple[tuple[float, float], ...]
#: (m, n, k, seconds) of products.
Products = tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """What kernels take when ``devices`` compute at the same time, each on ``threads`` threads.

    ``call_seconds`` pass per kernel besides its work, ``parallel_seconds`` more where several threads do it.
    ``operations``: seconds per element by ``"opcode dtype"``, of one thread with operands in its caches. ``read``,
    ``write`` and ``update`` (of what is read too): seconds per byte by the bytes that were used since the last use of
    the same ones. ``products``: seconds by type and size, with `` left`` or `` right`` behind the type where that side
    lies transposed. ``convolutions``: operations per second by kind and number of channels. ``spread``: the middle
    half's width over the median, of the measurement in the middle.
    """

    devices: int
    threads: int
    call_seconds: float
    operations: Mapping[str, float]
    read: Points
    write: Points
    update: Points
    products: Mapping[str, Products] = field(default_factory=lambda: MappingProxyType({}))
    convolutions: Mapping[str, Points] = field(default_factory=lambda: MappingProxyType({}))
    parallel_seconds: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class CollectiveCurve:
    """Seconds by bytes of the local result of the collective ``opcode`` among ``members``, all that there are.

    ``where`` is `RANKS` or `VIRTUAL`; ``spread`` as in `Rates`.
    """

    where: str
    opcode: str
    members: int
    points: Points
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a call of a compiled program with ``devices`` devices takes besides its kernels and collectives: seconds,
    and seconds for each argument and result."""

    where: str
    devices: int
    seconds: float
    per_array: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A calibration of the computer with ``cores`` cores of the ``cpu``, made at ``created`` (ISO 8601)."""

    cpu: str
    cores: int
    created: str
    rates: tuple[Rates, ...]
    collectives: tuple[CollectiveCurve, ...] = ()
    steps: tuple[StepCost, ...] = ()
    where: str = RANKS

    def stale(self) -> str:
        """Why these numbers are of another computer than this one; empty if they are of this one."""
        name, cores = cpu_name(), usable_cores()
        # A process may be bound to some of the cores.
        if name == self.cpu and self.cores in (cores, os.cpu_count()):
            return ""
        return f"measured on {count_text(self.cores, 'core')} of {self.cpu}; this computer has {cores} of {name}"

    def step_seconds(self, devices: int, arrays: int) -> float:
        """Seconds that a call with so many devices, arguments and results takes around its kernels and collectives."""
        found = sorted((s for s in self.steps if s.where == self.where or s.devices == 1), key=lambda s: s.devices)
        if not found:
            return 0.0
        points = tuple((s.devices, s.seconds + arrays * s.per_array) for s in found)
        return interpolate(points, devices)

    def rates_for(self, devices: int, threads: int) -> Rates:
        """The rates where ``devices`` compute at the same time with ``threads`` each, or the nearest that there are."""
        wanted = (min(self.cores, devices), threads)

        def distance(r: Rates) -> tuple[float, int, int]:
            pairs = zip((r.devices, r.threads), wanted, strict=True)
            return (sum(abs(math.log(a / b)) for a, b in pairs), r.devices, r.threads)

        return min(self.rates, key=distance)

    @property
    def busy(self) -> Rates:
        """The rates of one thread while all cores compute."""
        return min(self.rates, key=lambda r: (r.threads, -r.devices))


def interpolate(points: Points, size: float) -> float:
    """The value at ``size``: between points along a line in logarithms of both; beyond them the end's value.

    Example: ``interpolate(((1, 2.0), (100, 20.0)), 10)`` is the geometric mean of the two, 6.3.
    """
    n = bisect.bisect_left(points, (size,))
    if n == 0:
        return points[0][1]
    if n == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[n - 1], points[n]
    part = math.log(size / x0) / math.log(x1 / x0)
    return float(y0 * (y1 / y0) ** part)


def this_machine_path() -> Path:
    """Where `shardc calibrate` keeps what it found."""
    return Path(platformdirs.user_data_dir("shardc")) / "machines" / "this.toml"


def cpu_name() -> str:
    """What the CPU calls itself, with what tells models of one name apart."""
    facts: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    except (OSError, UnicodeDecodeError):
        pass
    name = facts.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{short} {facts[key]}" for key, short in (("cpu family", "family"), ("model", "model")) if key in facts]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def read_measured_table(given: Mapping[str, Any], where: str) -> Measured:
    """The calibration of a ``[measured]`` table; `InputError` for what is missing, unknown or makes no sense."""
    require_fields(given, Measured, "a calibration", where)
    try:
        for key, what in (("rates", Rates), ("collectives", CollectiveCurve), ("steps", StepCost)):
            for n, part in enumerate(given.get(key, [])):
                require_fields(part, what, f"a part of {key}", f"{where}, {key} {n}")
        return Measured(
            cpu=str(given["cpu"]),
            cores=int(_positive(given["cores"])),
            created=str(given["created"]),
            rates=tuple(_rates(r) for r in given["rates"]),
            collectives=tuple(
                CollectiveCurve(
                    str(c["where"]), str(c["opcode"]), int(c["members"]), _points(c["points"]), float(c["spread"])
                )
                for c in given.get("collectives", [])
            ),
            steps=tuple(
                StepCost(str(s["where"]), int(s["devices"]), float(s["seconds"]), float(s["per_array"]))
                for s in given.get("steps", [])
            ),
        )
    except KeyError as missing:
        raise InputError(f"the calibration has no {missing}", where=where, fix=_AGAIN) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the calibration cannot be read: {error}", where=where, fix=_AGAIN) from None


_AGAIN = "run shardc calibrate again"


def _rates(given: Mapping[str, Any]) -> Rates:
    return Rates(
        devices=int(_positive(given["devices"])),
        threads=int(_positive(given["threads"])),
        call_seconds=float(given["call_seconds"]),
        operations=MappingProxyType({str(k): _positive(v) for k, v in given["operations"].items()}),
        read=_points(given["read"]),
        write=_points(given["write"]),
        update=_points(given["update"]),
        products=MappingProxyType({str(k): _products(v) for k, v in given["products"].items()}),
        convolutions=MappingProxyType({str(k): _points(v) for k, v in given["convolutions"].items()}),
        parallel_seconds=float(given["parallel_seconds"]),
        spread=float(given["spread"]),
    )


def _points(given: Sequence[Sequence[float]]) -> Points:
    if not given:
        raise ValueError("a curve without points")
    return tuple(sorted((_positive(x), _positive(y)) for x, y in given))


def _products(given: Sequence[Sequence[float]]) -> Products:
    return tuple((_positive(m), _positive(n), _positive(k), _positive(s)) for m, n, k, s in given)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{value!r} is not a positive number")
    return float(value)
