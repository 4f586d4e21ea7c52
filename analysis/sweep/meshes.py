"""Which meshes a number of devices can form, and which of them to try when there are too many to try all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.errors import InputError
from shardc.hlo.ir.mesh import MOST_DEVICES, Mesh
from shardc.sharding.notations.annotate import named_axes

__all__ = [
    "Limit",
    "MeshSearch",
    "Sizes",
    "axes_to_try",
    "device_counts",
    "factorisations",
    "mesh_to_resize",
    "parse_devices",
    "parse_limit",
]

#: The axes of meshes for programs that name none.
_AXES = ("data", "model")

#: The sizes of a mesh's axes, in their order.
Sizes = tuple[int, ...]

#: Where a text of `parse_devices` was given, on the command line, in Python or in an order, in an error's words.
_DEVICES = "the numbers of devices"


@dataclass(frozen=True, slots=True)
class Limit:
    """Sizes that an axis may have: from ``least`` to ``most`` (0: no bound), or one of ``only``."""

    least: int = 1
    most: int = 0
    only: tuple[int, ...] = ()

    def allows(self, size: int) -> bool:
        if self.only:
            return size in self.only
        return size >= self.least and (not self.most or size <= self.most)


def parse_limit(value: object, where: str) -> Limit:
    """``4``, ``"1..64"``, ``"8.."`` or ``[1, 2, 4]``. Raises `InputError`."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return Limit(only=(value,))
    if isinstance(value, list | tuple) and value and all(type(v) is int and v > 0 for v in value):
        return Limit(only=tuple(value))
    if isinstance(value, str):
        least, dots, most = (part.strip() for part in value.partition(".."))
        if not dots and _whole(least):
            return Limit(only=(int(least),))
        if dots and (not least or _whole(least)) and (not most or _whole(most)):
            limit = Limit(int(least or 1), int(most or 0))
            if not limit.most or limit.least <= limit.most:
                return limit
    raise InputError(f"{value!r} is not a limit of an axis", where=where, fix='write 4, "1..64", "8.." or [1, 2, 4]')


def device_counts(devices: int | str | Iterable[int]) -> tuple[int, ...]:
    """Numbers of devices, ascending, each once. Raises `InputError`."""
    if isinstance(devices, str):
        return parse_devices(devices)
    counts = (devices,) if not isinstance(devices, Iterable) else tuple(devices)
    if not counts or not all(type(n) is int and n > 0 for n in counts):
        raise InputError(
            f"devices is {devices!r}", fix='give numbers of devices: devices=[8, 64], or devices="8..4096"'
        )
    return tuple(sorted(set(counts)))


def parse_devices(text: str) -> tuple[int, ...]:
    """Numbers of devices, ascending: ``8..4096`` are the powers of two between, ``8,16,24`` just these.

    Raises `InputError`. Example: ``parse_devices("3,8..32") == (3, 8, 16, 32)``.
    """
    found: set[int] = set()
    for part in (p.strip() for p in text.split(",")):
        first, dots, last = (p.strip() for p in part.partition(".."))
        if not _whole(first) or (dots and not _whole(last)):
            raise _bad_devices(part)
        if not dots:
            found.add(int(first))
            continue
        if int(first) > int(last):
            raise InputError(f"the range {part} is empty", where=_DEVICES, fix=f"write {last}..{first}")
        between = {1 << k for k in range(MOST_DEVICES.bit_length()) if int(first) <= 1 << k <= int(last)}
        if not between:
            raise InputError(f"{part} contains no power of two", where=_DEVICES, fix="write 8..4096 or 12,24")
        found |= between
    if max(found) > MOST_DEVICES:
        raise InputError(f"{max(found)} devices are too many", where=_DEVICES, fix=f"give at most {MOST_DEVICES}")
    return tuple(sorted(found))


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


def _bad_devices(part: str) -> InputError:
    what = f"{part!r} is not a number of devices"
    return InputError(what, where=_DEVICES, fix="write 8..4096 (powers of two) or 8,16,24")


def axes_to_try(specs: Iterable[str]) -> tuple[str, ...]:
    """The axes of meshes for a program without one: those that its annotations speak of, and two at least."""
    named = named_axes(specs)
    return _AXES if set(named) <= set(_AXES) else (*named, *_AXES[len(named) :])


def mesh_to_resize(specs: Iterable[str]) -> Mesh:
    """A mesh of one device, for annotations of a program without a mesh whose number of devices is tried later."""
    return Mesh(dict.fromkeys(axes_to_try(specs), 1))


def factorisations(devices: int, axes: Sequence[str], limits: Mapping[str, Limit]) -> list[Sizes]:
    """The sizes of ``axes`` whose product is ``devices``, each within its limit; larger first axes first."""
    if not axes:
        return [()] if devices == 1 else []
    limit = limits.get(axes[0], Limit())
    found: list[Sizes] = []
    for size in sorted(_divisors(devices), reverse=True):
        if limit.allows(size):
            found += [(size, *rest) for rest in factorisations(devices // size, axes[1:], limits)]
    return found


def _divisors(n: int) -> set[int]:
    return {d for k in range(1, math.isqrt(n) + 1) if n % k == 0 for d in (k, n // k)}


@dataclass(frozen=True)
class MeshSearch:
    """Which of ``meshes`` to try, ``limit`` of them at most: all, or some all over and then the best one's neighbours.

    Neighbours differ by one prime factor that went from one axis to another.
    """

    meshes: tuple[Sizes, ...]
    limit: int

    @property
    def most(self) -> int:
        """How many are tried at most."""
        return min(self.limit, len(self.meshes))

    def first(self) -> list[Sizes]:
        """What to begin with."""
        if len(self.meshes) <= self.limit:
            return list(self.meshes)
        count = max(1, self.limit // 2)
        return [self.meshes[k * len(self.meshes) // count] for k in range(count)]

    def following(self, seconds: Mapping[Sizes, float]) -> list[Sizes]:
        """What to try next when ``seconds`` are known (infinite for what cannot run); nothing: the search is over."""
        left = self.most - len(seconds)
        finite = [mesh for mesh in self.meshes if seconds.get(mesh, math.inf) < math.inf]
        if left <= 0 or not finite:
            return [mesh for mesh in self.meshes if mesh not in seconds][: max(0, left)]
        best = min(finite, key=lambda mesh: seconds[mesh])
        return [mesh for mesh in self.meshes if mesh not in seconds and _near(mesh, best)][:left]


def _near(a: Sizes, b: Sizes) -> bool:
    changed = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
    if len(changed) != 2:
        return False
    (x, y), _ = changed
    step, rest = divmod(max(x, y), min(x, y))
    return rest == 0 and len(_divisors(step)) == 2
