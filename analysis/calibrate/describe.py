"""A calibration as the description of a machine: TOML that `shardc.costs.machines.machine.load_machine` reads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardc.costs.machines.measured import RANKS, Measured, Rates
from shardc.hlo.units import count_text

__all__ = ["machine_text"]


def machine_text(measured: Measured, name: str = "this") -> str:
    """The whole file. ``[device]`` and ``[[levels]]`` are round figures of one core for whoever does not read the
    ``[measured]`` part."""
    busy = measured.busy
    source = f'"measured by shardc calibrate at {measured.created}"'
    lines = [
        f"# {count_text(measured.cores, 'core')} of {measured.cpu}, "
        f"measured by shardc calibrate at {measured.created}.",
        f"name = {_value(name)}",
        "",
        "[device]",
        'kind = "cpu"',
        f"memory_bytes = {_memory()}",
        f"memory_bandwidth = {_bandwidth(busy):.4g}",
        f"launch_seconds = {busy.call_seconds:.4g}",
        f"source = {source}",
        "",
        "[device.flops]",
        *(f"{dtype} = {_peak(busy, dtype):.4g}" for dtype in busy.products if " " not in dtype),
        "",
        "[[levels]]",
        'name = "memory"',
        "size = 0",
        'kind = "switch"',
        *_links(measured),
        f"source = {source}",
        f"latency_source = {source}",
        "",
        "[measured]",
        *_fields({"cpu": measured.cpu, "cores": measured.cores, "created": measured.created}),
    ]
    for rates in measured.rates:
        lines += ["", "[[measured.rates]]", *_fields(_numbers(rates))]
        lines += ["", "[measured.rates.operations]", *_fields(rates.operations)]
        lines += ["", "[measured.rates.products]", *_fields(rates.products)]
        lines += ["", "[measured.rates.convolutions]", *_fields(rates.convolutions)]
    for c in measured.collectives:
        fields = {"where": c.where, "opcode": c.opcode, "members": c.members, "spread": c.spread, "points": c.points}
        lines += ["", "[[measured.collectives]]", *_fields(fields)]
    for s in measured.steps:
        fields = {"where": s.where, "devices": s.devices, "seconds": s.seconds, "per_array": s.per_array}
        lines += ["", "[[measured.steps]]", *_fields(fields)]
    return "\n".join(lines) + "\n"


def _numbers(rates: Rates) -> dict[str, Any]:
    return {
        "devices": rates.devices,
        "threads": rates.threads,
        "call_seconds": rates.call_seconds,
        "parallel_seconds": rates.parallel_seconds,
        "spread": rates.spread,
        "read": rates.read,
        "write": rates.write,
        "update": rates.update,
    }


def _fields(values: Mapping[str, Any]) -> Iterable[str]:
    return [f"{key if key.isidentifier() else _value(key)} = {_value(value)}" for key, value in values.items()]


def _value(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{"".join(c for c in escaped if c.isprintable())}"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return "[" + ", ".join(map(_value, value)) + "]"


def _memory() -> int:
    """Bytes of memory of the computer, which its devices share."""
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return 1 << 33


def _bandwidth(rates: Rates) -> float:
    """Bytes per second of the largest arrays, half read and half written."""
    return 2 / (rates.read[-1][1] + rates.write[-1][1])


def _peak(rates: Rates, dtype: str) -> float:
    return max(2 * m * n * k / seconds for m, n, k, seconds in rates.products[dtype])


def _links(measured: Measured) -> Sequence[str]:
    """Bandwidth and latency between two devices, from the permutes that were measured."""
    curves = [c for c in measured.collectives if c.opcode == "collective-permute"]
    points = min(curves, key=lambda c: (c.where != RANKS, c.members)).points if curves else ((1.0, 1e-6), (1e6, 1e-3))
    latency, (size, seconds) = points[0][1], points[-1]
    return [f"bandwidth = {size / max(seconds - latency, 1e-3 * seconds):.4g}", f"latency = {_rounded(latency)}"]


def _rounded(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "1e-06"
