"""A computer of known rates that answers what the calibration asks: the fits must find these rates again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.analysis.calibrate.clock import Timing
from shardc.analysis.calibrate.programs import MeasuredLoop

CALL, PARALLEL = 3e-8, 2e-6
#: Seconds per element.
SIMPLE, COSTLY, REDUCED, MOVED, ROW = 2e-11, 4e-10, 3e-11, 1e-10, 5e-9
READ, WRITE, UPDATE = 1e-11, 2e-11, 5e-12
#: Seconds per multiplication, and operations per second of convolutions.
PRODUCT, CONVOLUTION = 2e-11, 5e10
LATENCY, BANDWIDTH, STEP, ARRAY = 2e-6, 4e9, 1e-5, 5e-7

_COSTLY = ("exponential", "log", "tanh", "logistic", "sqrt", "rsqrt", "sine", "cosine", "erf", "power")
_PARTNERS = ("maximum", "select", "xor", "add s32", "shift-right-logical")


class SyntheticClock:
    """Stands in for `CalibrationClock`; ``asked`` are the shares that were measured."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def kernels(self, loops: Sequence[MeasuredLoop], devices: int, threads: int, runs: int) -> Mapping[str, Timing]:
        self.asked.append((devices, threads))
        return {loop.name: Timing(CALL + _work(loop.name, threads), 0.01) for loop in loops}

    def virtual(self, devices: int, runs: int) -> tuple[Mapping[str, Timing], Sequence[float]]:
        return self._exchanged(devices)

    def ranks(self, devices: int, runs: int) -> tuple[Mapping[str, Timing], Sequence[float]]:
        return self._exchanged(devices)

    def _exchanged(self, devices: int) -> tuple[Mapping[str, Timing], Sequence[float]]:
        sizes = (256, 65536, 1 << 22) if devices > 1 else ()
        names = [f"{op} {n}" for op in ("all-reduce", "collective-permute") for n in sizes]
        seconds = {n: devices * LATENCY + int(n.split()[1]) / BANDWIDTH for n in names}
        return {n: Timing(s, 0.02) for n, s in seconds.items()}, (STEP * devices, ARRAY)


def _work(name: str, threads: int) -> float:
    words = name.split()
    if name == "empty":
        return 0.0
    if words[0] in ("read", "write", "update"):
        return int(words[1]) * {"read": READ, "write": WRITE, "update": READ + UPDATE}[words[0]]
    if words[0] == "product":
        m, n, k = map(int, words[-3:])
        return m * n * k * PRODUCT
    if words[0] in ("tiles", "patches", "channels"):
        from shardc.analysis.calibrate.products import CONVOLUTIONS, operations_of

        return next(operations_of(c) for c in CONVOLUTIONS if str(c.channels) == words[-1] and c.kind == words[0]) / (
            CONVOLUTION
        )
    if name.endswith("on threads"):
        one = (1 << 17) * (COSTLY + SIMPLE)
        return one if threads == 1 else one / threads + PARALLEL
    return _elements(name)


def _elements(name: str) -> float:
    opcode = name.split(maxsplit=1)[0]
    if name == "row f32":
        return 2048 * (16 * REDUCED + ROW)
    if opcode.startswith("reduce"):
        return 16 * 256 * REDUCED
    if opcode in ("transpose", "gather", "scatter", "concatenate", "concatenate-last", "reverse"):
        return 64 * 64 * MOVED
    if opcode == "sort":
        return 16 * 2048 * 4 * MOVED
    length = int(name.rpartition(" x")[2])
    if opcode == "convert":
        return 2 * length * 2048 * SIMPLE
    if opcode.startswith(_COSTLY) and length == 1:
        return 2048 * (COSTLY + SIMPLE)
    each = 2 if name.startswith(_PARTNERS) else 1
    return length * 2048 * SIMPLE * each
