"""Who needs what: plans for devices that read intervals of dimensions that others hold parts of.

Everything that moves elements along one dimension in order (a window with its halo, a slice, a pad, a roll, a
concatenation, a reversal) is one picture: a *virtual* dimension is put together from *sources*, intervals of split
or whole arrays, and each device needs one interval of it. `plan` says which parts travel, in as few permutes of as
few elements as it finds, and where they land. Only integers here; `halo.py` writes the instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

__all__ = ["Landing", "Plan", "Round", "Source", "Spot", "Wish", "plan"]


@dataclass(frozen=True, slots=True)
class Source:
    """``length`` elements of operand ``operand`` from element ``start`` stand at virtual position ``at``.

    Device i holds elements ``i * chunk`` to ``(i + 1) * chunk`` of a split operand, all ``chunk`` of a whole one.
    """

    operand: int
    chunk: int
    split: bool
    start: int
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class Wish:
    """Device i reads virtual positions ``starts[i]`` to ``starts[i] + sizes[i]``; its buffer has ``size``.

    A size below ``size`` leaves the rest of the buffer to chance; 0 stands for devices that hold only padding.
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Landing:
    """Of what round it is, ``length`` elements that device i wants at buffer position ``place``.

    They are elements ``low`` to ``low + length`` of what shard ``shard`` holds of the operand.
    """

    shard: int
    device: int
    low: int
    length: int
    place: int


@dataclass(frozen=True, slots=True)
class Round:
    """Pieces of one operand that go at once: at most one from and one to every device, or each its own.

    ``size`` elements of the shard go, on shard j from ``first[j]`` on (absent: of no importance); ``pairs`` are
    senders and receivers.
    """

    operand: int
    own: bool
    size: int
    first: dict[int, int]
    pieces: tuple[Landing, ...]
    pairs: tuple[tuple[int, int], ...]

    def offset(self, piece: Landing) -> int:
        """Where in the buffer the round's first element comes to lie with this piece."""
        return piece.place - (piece.low - self.first[piece.shard])


@dataclass(frozen=True, slots=True)
class Spot:
    """A place of the buffer, ``low`` to ``high``, that round ``round`` takes if its elements begin at ``offset``."""

    round: int
    offset: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The rounds, per device the part of its buffer that sources fill, and the places that rounds take.

    ``apart``: no two spots overlap, so that the buffer is the rounds' elements side by side on every device. Then
    there may be something else than fill on some device before (or after) what sources fill: ``strays`` tells so
    for any fill, ``zero_strays`` for a fill of zeros, which devices have that receive nothing.
    """

    rounds: tuple[Round, ...]
    filled: tuple[tuple[int, int], ...]
    spots: tuple[Spot, ...]
    apart: bool
    strays: tuple[bool, bool]
    zero_strays: tuple[bool, bool]

    def sent(self, operand: int) -> tuple[int, int]:
        """Elements along the dimension that one device sends of an operand, and in how many permutes."""
        rounds = [r.size for r in self.rounds if r.operand == operand and not r.own]
        return sum(rounds), len(rounds)


@lru_cache(maxsize=4096)
def plan(sources: tuple[Source, ...], wish: Wish) -> Plan:
    """Rounds that bring every device what it wishes."""
    chunk = {s.operand: s.chunk for s in sources}
    rounds = []
    for operand in sorted(chunk):
        pieces = [p for s in sources if s.operand == operand for p in _pieces(s, wish)]
        whole = not all(s.split for s in sources if s.operand == operand)
        rounds += [_round(operand, True, chunk[operand], own) for own in _own(pieces, whole=whole)]
        if not whole:
            groups = _grouped(p for p in pieces if p.shard != p.device)
            rounds += [_round(operand, False, chunk[operand], g) for g in groups]
    first, last = sources[0].at, sources[-1].at + sources[-1].length
    filled = []
    for start, size in zip(wish.starts, wish.sizes, strict=True):
        low = min(max(first - start, 0), size)
        filled.append((low, max(low, min(last - start, size))))
    starts = sorted({(r.offset(p), n) for n, r in enumerate(rounds) for p in r.pieces})
    spots = [Spot(n, o, max(o, 0), min(o + rounds[n].size, wish.size)) for o, n in starts]
    apart = all(a.high <= b.low for a, b in pairwise(spots))
    strays, zero_strays = (_strays(rounds, filled, spots, wish, zero=zero) for zero in (False, True))
    return Plan(tuple(rounds), tuple(filled), tuple(spots), apart, strays, zero_strays)


def _strays(
    rounds: list[Round], filled: list[tuple[int, int]], spots: list[Spot], wish: Wish, *, zero: bool
) -> tuple[bool, bool]:
    """Do rounds leave anything outside of what sources fill? With ``zero``, what nobody sent does not count."""
    below = above = False
    for spot in spots:
        r = rounds[spot.round]
        devices = {p.device for p in r.pieces} if zero and not r.own else range(len(filled))
        for i in devices:
            low, high = filled[i]
            below = below or spot.low < low
            above = above or max(spot.low, high) < min(spot.high, wish.sizes[i])
    return below, above


def _pieces(source: Source, wish: Wish) -> Iterator[Landing]:
    """The parts of a source that devices wish, cut where shards end."""
    for device, (start, size) in enumerate(zip(wish.starts, wish.sizes, strict=True)):
        low, high = max(start, source.at), min(start + size, source.at + source.length)
        while low < high:
            element = low - source.at + source.start
            shard = element // source.chunk if source.split else device
            local = element - shard * source.chunk if source.split else element
            length = min(high - low, source.chunk - local)
            yield Landing(shard, device, local, length, low - start)
            low += length


def _own(pieces: list[Landing], *, whole: bool) -> list[list[Landing]]:
    """What devices find at home; several pieces of one device go in groups of their own."""
    groups: list[list[Landing]] = []
    counted: dict[int, int] = {}
    for p in pieces:
        if whole or p.shard == p.device:
            n = counted[p.device] = counted.get(p.device, -1) + 1
            if n == len(groups):
                groups.append([])
            groups[n].append(p)
    return groups


def _grouped(pieces: Iterator[Landing]) -> list[list[Landing]]:
    """Pieces from equally distant shards go together, others join where sender and receiver are still free."""
    groups: list[list[Landing]] = []
    busy: list[tuple[set[int], set[int]]] = []
    for p in sorted(pieces, key=lambda p: (p.shard - p.device, p.device)):
        for group, (senders, receivers) in zip(groups, busy, strict=True):
            if p.shard not in senders and p.device not in receivers:
                group.append(p)
                senders.add(p.shard)
                receivers.add(p.device)
                break
        else:
            groups.append([p])
            busy.append(({p.shard}, {p.device}))
    return groups


def _round(operand: int, own: bool, chunk: int, pieces: list[Landing]) -> Round:
    """The same elements on every shard if that sends no more, else from where each shard's piece begins."""
    size = max(p.length for p in pieces)
    pairs = tuple(sorted((p.shard, p.device) for p in pieces))
    low, high = min(p.low for p in pieces), max(p.low + p.length for p in pieces)
    if own or high - low == size:
        return Round(operand, own, high - low, {p.shard: low for p in pieces}, tuple(pieces), pairs)
    return Round(operand, own, size, {p.shard: min(p.low, chunk - size) for p in pieces}, tuple(pieces), pairs)
