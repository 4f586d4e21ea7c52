"""Machines as data: what a device can do and the levels of links between devices.

A description is a TOML file (those that come along are in ``machines/``), every number with its source. Devices are
numbered so that neighbours share the innermost level: level 0 joins ``size`` consecutive devices, level 1 that many
of those groups, and so on; a size of 0 means as many as there are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardc.collectives.device import Device, device_of, positive
from shardc.hlo.errors import InputError

__all__ = ["Level", "Machine", "load_machine", "machine_names"]

_FOLDER = Path(__file__).parent / "machines"
_KINDS = ("switch", "torus")


@dataclass(frozen=True, slots=True)
class Level:
    """Links of one kind: ``bandwidth`` bytes per second and device in one direction, ``latency`` seconds per message.

    Through a ``switch`` every pair talks at full rate; along a ``torus`` a message to a far member passes the others.
    """

    name: str
    size: int
    kind: str
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Machine:
    """Levels come innermost first."""

    name: str
    device: Device
    levels: tuple[Level, ...]


def machine_names() -> tuple[str, ...]:
    """Machines that come along."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.toml")))


def load_machine(name: str | Path) -> Machine:
    """A machine by name, or from a TOML file; `InputError` for unknown names and bad descriptions."""
    path = _FOLDER / f"{name}.toml"
    if str(name) not in machine_names():
        path = Path(name)
        if not path.is_file():
            known = ", ".join(machine_names())
            raise InputError(f"no machine {str(name)!r}", fix=f"use one of {known}, or the path of a description")
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"the machine description cannot be read: {error}", where=str(path)) from None
    return _machine(given, path)


def _machine(given: Mapping[str, Any], path: Path) -> Machine:
    device = given.get("device")
    levels = given.get("levels")
    if not isinstance(device, dict) or not isinstance(levels, list) or not levels:
        raise InputError("a machine has a [device] and at least one [[levels]]", where=str(path))
    made = tuple(_level(level, f"{path}, level {n}") for n, level in enumerate(levels))
    if any(level.size == 0 for level in made[:-1]):
        raise InputError("only the outermost level may have any size (0)", where=str(path))
    return Machine(str(given.get("name", path.stem)), device_of(device, f"{path}, device"), made)


def _level(given: Mapping[str, Any], where: str) -> Level:
    kind, size = given.get("kind", "switch"), given.get("size", 0)
    if kind not in _KINDS:
        raise InputError(f"links of kind {kind!r}", where=where, fix=f"use one of {', '.join(_KINDS)}")
    if not isinstance(size, int) or size < 0:
        raise InputError(f"a level of size {size!r}", where=where, fix="give a number of members, or 0 for any")
    bandwidth, latency = positive(given, "bandwidth", where), positive(given, "latency", where)
    return Level(str(given.get("name", "")), size, kind, bandwidth, latency)
