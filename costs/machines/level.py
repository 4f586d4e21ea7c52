"""Levels of links as data: the ``[[levels]]`` of a machine's description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardc.costs.machines.device import optional_number, require_fields, require_positive
from shardc.hlo.errors import InputError
from shardc.hlo.units import count_text

__all__ = ["Level", "level_of"]

_KINDS = ("switch", "torus")
_WRAPS = ("all", "none", "blocks")


@dataclass(frozen=True, slots=True)
class Level:
    """Links of one kind: ``bandwidth`` bytes per second in one direction, ``latency`` seconds per message.

    Through a ``switch`` every pair talks at full rate, and ``bandwidth`` is a device's; along a ``torus`` a message to
    a far member passes the others, and ``bandwidth`` is one link's. Long messages reach ``efficiency`` of it, and each
    collective takes ``start`` seconds besides.
    A torus comes in ``slices``: the shapes listed and, with a ``block``, those whose dimensions are multiples of it.
    ``wrap`` says which dimensions have links around their ends (a number: those of that size).
    """

    name: str
    size: int
    kind: str
    bandwidth: float
    latency: float
    efficiency: float = 1.0
    oversubscription: float = 1.0
    start: float = 0.0
    slices: tuple[tuple[int, ...], ...] = ()
    block: int = 0
    wrap: str | int = "all"

    @property
    def achieved(self) -> float:
        """Bytes per second that long messages reach when everybody sends."""
        return self.bandwidth * self.efficiency / self.oversubscription

    @property
    def rank(self) -> int:
        """Dimensions of a torus."""
        return len(self.slices[0]) if self.slices else 1


def level_of(given: Mapping[str, Any], where: str) -> Level:
    """The level of a ``[[levels]]`` table; `InputError` for what is missing, unknown or makes no sense."""
    require_fields(given, Level, "a level", where)
    kind, size = given.get("kind", "switch"), given.get("size", 0)
    if kind not in _KINDS:
        raise InputError(f"unknown kind of links {kind!r}", where=where, fix=f"use one of {', '.join(_KINDS)}")
    if not isinstance(size, int) or size < 0:
        raise InputError(f"size is {size!r}", where=where, fix="give a number of members, or 0 for any")
    efficiency = require_positive(given, "efficiency", where) if "efficiency" in given else 1.0
    if efficiency > 1:
        raise InputError(f"efficiency is {efficiency}", where=where, fix="give a fraction between 0 and 1")
    over = require_positive(given, "oversubscription", where) if "oversubscription" in given else 1.0
    if over < 1:
        raise InputError(f"oversubscription is {over}", where=where, fix="give at least 1")
    slices, block = _slices(given, where), given.get("block", 0)
    if not isinstance(block, int) or block < 0 or (block and not slices):
        raise InputError(f"block is {block!r}", where=where, fix="give a number of devices, and slices too")
    wrap = given.get("wrap", "all")
    if wrap not in _WRAPS and not (isinstance(wrap, int) and wrap > 1):
        raise InputError(f"wrap is {wrap!r}", where=where, fix=f"use one of {', '.join(_WRAPS)}, or a size")
    return Level(
        name=str(given.get("name", kind)),
        size=size,
        kind=kind,
        bandwidth=require_positive(given, "bandwidth", where),
        latency=require_positive(given, "latency", where),
        efficiency=efficiency,
        oversubscription=over,
        start=optional_number(given, "start", where),
        slices=slices,
        block=block,
        wrap=wrap,
    )


def _slices(given: Mapping[str, Any], where: str) -> tuple[tuple[int, ...], ...]:
    slices = given.get("slices", [])
    good = isinstance(slices, list) and all(
        isinstance(s, list) and s and all(isinstance(n, int) and n > 0 for n in s) for s in slices
    )
    if not good or len({len(s) for s in slices}) > 1:
        fix = "give shapes of one rank, such as [[2, 2, 1], [2, 2, 2]]"
        raise InputError(f"slices are {slices!r}", where=where, fix=fix)
    if slices and len(slices[0]) > 3:
        raise InputError(
            f"slices have {count_text(len(slices[0]), 'dimension')}",
            where=where,
            fix="give at most three: a torus has no more",
        )
    return tuple(tuple(s) for s in slices)
