"""Exchange plans: each device reads an interval of a dimension of which others hold parts.

Everything that moves elements along one dimension in order (a window with its halo, a slice, a pad, a roll, a
concatenation, a reversal) is planned alike: a *virtual* dimension is put together from *sources*, intervals of split
or whole arrays, and each device needs one interval of it. `plan_exchange` says which parts travel, in as few permutes
of as few elements as it finds, and where they land. Only integers here; `halo.py` writes the instructions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

__all__ = [
    "ExchangePlan",
    "Landing",
    "Round",
    "SourceInterval",
    "Spot",
    "TargetIntervals",
    "operands_to_gather",
    "plan_exchange",
    "plan_own",
]


@dataclass(frozen=True, slots=True)
class SourceInterval:
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
class TargetIntervals:
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

    operand: int
    shard: int
    device: int
    low: int
    length: int
    place: int


@dataclass(frozen=True, slots=True)
class Round:
    """Pieces that go at once: at most one from and one to every device, or each its own.

    ``size`` elements of the shard go, on shard j from ``first[j]`` on (absent: of no importance); ``pairs`` are
    senders and receivers. With several operands the shard is all of theirs one after another, operand o's from
    ``base[o]`` on.
    """

    base: dict[int, int]
    own: bool
    size: int
    first: dict[int, int]
    pieces: tuple[Landing, ...]
    pairs: tuple[tuple[int, int], ...]

    def offset(self, piece: Landing) -> int:
        """Where in the buffer the round's first element comes to lie with this piece."""
        return piece.place - (self.base[piece.operand] + piece.low - self.first[piece.shard])


@dataclass(frozen=True, slots=True)
class Spot:
    """A place of the buffer, ``low`` to ``high``, that round ``round`` takes if its elements begin at ``offset``."""

    round: int
    offset: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """The rounds, per device the part of its buffer that sources fill, and the places that rounds take.

    ``apart``: no two spots overlap, so that the buffer is the rounds' elements side by side on every device. Then
    there may be something else than fill on some device before (or after) what sources fill: ``strays`` tells so
    for any fill, ``zero_strays`` for a fill of zeros, which devices have that receive nothing.

    ``order``: written one after another in this order, each where its device wants it, rounds leave nothing else in
    places that sources fill or that stay fill; None where no order does.
    """

    rounds: tuple[Round, ...]
    filled: tuple[tuple[int, int], ...]
    spots: tuple[Spot, ...]
    apart: bool
    strays: tuple[bool, bool]
    zero_strays: tuple[bool, bool]
    order: tuple[int, ...] | None

    @property
    def sent(self) -> tuple[int, int]:
        """Elements along the dimension that one device sends, and in how many permutes."""
        rounds = [r.size for r in self.rounds if not r.own]
        return sum(rounds), len(rounds)


#: A dimension is gathered rather than put together from more permutes than this.
_MOST_ROUNDS = 16


@lru_cache(maxsize=4096)
def operands_to_gather(sources: tuple[SourceInterval, ...], target: TargetIntervals) -> frozenset[int]:
    """Split operands of which so much is read that every device may as well have them whole."""
    k = len(target.starts)
    out = set()
    for operand, own in _by_operand(sources).items():
        if not any(s.split for s in own):
            continue
        if _needs_many_rounds(own, target):
            out.add(operand)
            continue
        alone = _alone(own, target)
        sent, messages = _effort(alone.travelling)
        everything = (k - 1) * alone.chunk
        if sent > everything or (sent == everything and messages > 1) or messages > _MOST_ROUNDS:
            out.add(operand)
    return frozenset(out)


def _by_operand(sources: Iterable[SourceInterval]) -> dict[int, tuple[SourceInterval, ...]]:
    """The sources of each operand, operands in order."""
    found: dict[int, list[SourceInterval]] = {}
    for s in sources:
        found.setdefault(s.operand, []).append(s)
    return {operand: tuple(found[operand]) for operand in sorted(found)}


def _needs_many_rounds(sources: Sequence[SourceInterval], target: TargetIntervals) -> bool:
    """Whether a device sends to, or receives from, so many others that the operand is gathered however pieces are
    grouped.

    Asked before pieces are made: there may be as many as pairs of devices.
    """
    if not all(s.split for s in sources):
        return False
    k = len(target.starts)
    received, sent = [0] * k, [0] * (k + 1)
    for s in sources:
        for device, (start, size) in enumerate(zip(target.starts, target.sizes, strict=True)):
            low, high = max(start, s.at) - s.at + s.start, min(start + size, s.at + s.length) - s.at + s.start
            if low < high:
                first, last = low // s.chunk, (high - 1) // s.chunk
                sent[first] += 1
                sent[last + 1] -= 1
                received[device] += last + 1 - first
    # What stays at home is one piece of each source at most.
    return max(*accumulate(sent), *received) > _MOST_ROUNDS + len(sources)


@dataclass(frozen=True, slots=True)
class _Alone:
    """One operand's part in a plan: its chunk, and the rounds of what stays and of what travels by itself."""

    chunk: int
    own: tuple[Round, ...]
    travelling: tuple[Round, ...]


@lru_cache(maxsize=4096)
def _alone(sources: tuple[SourceInterval, ...], target: TargetIntervals) -> _Alone:
    """Of sources that are all of one operand; one that is not split anywhere stays."""
    pieces = list(_pieces_of(sources, target))
    chunks = {sources[0].operand: sources[0].chunk}
    whole = not all(s.split for s in sources)
    own = tuple(_round(chunks, True, group) for group in _own(pieces, whole=whole))
    return _Alone(sources[0].chunk, own, () if whole else tuple(_travelling(pieces, chunks)))


@lru_cache(maxsize=4096)
def plan_own(source: SourceInterval, target: TargetIntervals) -> ExchangePlan:
    """Of an exchange what every device finds in its own shard of a split source; all else is left to the fill."""
    own: list[Landing] = []
    filled = [(0, 0)] * len(target.starts)
    for device, (start, size) in enumerate(zip(target.starts, target.sizes, strict=True)):
        shard = source.at - source.start + device * source.chunk
        low = max(start, source.at, shard)
        high = min(start + size, source.at + source.length, shard + source.chunk)
        if low < high:
            own.append(Landing(source.operand, device, device, low - shard, high - low, low - start))
            filled[device] = (low - start, high - start)
    rounds = [_round({source.operand: source.chunk}, True, own)] if own else []
    order = _order(rounds, filled, target)
    return ExchangePlan(tuple(rounds), tuple(filled), (), False, (True, True), (True, True), order)


@lru_cache(maxsize=4096)
def plan_exchange(sources: tuple[SourceInterval, ...], target: TargetIntervals) -> ExchangePlan:
    """Rounds that bring every device its target interval."""
    alone = {o: _alone(own, target) for o, own in _by_operand(sources).items()}
    rounds = [r for one in alone.values() for r in one.own]
    several = {o: one for o, one in alone.items() if one.travelling}
    travelling = [r for one in several.values() for r in one.travelling]
    if len(several) > 1:
        pieces = [p for r in travelling for p in r.pieces]
        travelling = min(travelling, _travelling(pieces, {o: one.chunk for o, one in several.items()}), key=_effort)
    rounds += travelling
    first, last = sources[0].at, sources[-1].at + sources[-1].length
    filled = []
    for start, size in zip(target.starts, target.sizes, strict=True):
        low = min(max(first - start, 0), size)
        filled.append((low, max(low, min(last - start, size))))
    starts = sorted({(r.offset(p), n) for n, r in enumerate(rounds) for p in r.pieces})
    spots = [Spot(n, o, max(o, 0), min(o + rounds[n].size, target.size)) for o, n in starts]
    apart = all(a.high <= b.low for a, b in pairwise(spots))
    strays, zero_strays = (_strays(rounds, filled, spots, target, zero=zero) for zero in (False, True))
    order = _order(rounds, filled, target)
    return ExchangePlan(tuple(rounds), tuple(filled), tuple(spots), apart, strays, zero_strays, order)


def _effort(rounds: Iterable[Round]) -> tuple[int, int]:
    sizes = [r.size for r in rounds]
    return sum(sizes), len(sizes)


def _travelling(pieces: Iterable[Landing], chunks: dict[int, int]) -> list[Round]:
    """Rounds for what changes devices, of the ways to group it the one that sends least."""
    moving = [p for p in pieces if p.shard != p.device]
    sent = Counter(p.shard for p in moving)
    received = Counter(p.device for p in moving)
    least = max((*sent.values(), *received.values()), default=0)
    near = _near(moving, least + _MOST_ROUNDS)
    ways = [] if near is None else [near]
    if near is None or len(near) > least:
        ways.append(_colour(moving))
    return min(([_round(chunks, False, g) for g in way] for way in ways), key=_effort)


def _strays(
    rounds: list[Round], filled: list[tuple[int, int]], spots: list[Spot], target: TargetIntervals, *, zero: bool
) -> tuple[bool, bool]:
    """Whether rounds leave anything below, and above, what sources fill. With ``zero``, what nobody sent does not
    count."""
    below = above = False
    for spot in spots:
        r = rounds[spot.round]
        devices = {p.device for p in r.pieces} if zero and not r.own else range(len(filled))
        for i in devices:
            low, high = filled[i]
            below = below or spot.low < low
            above = above or max(spot.low, high) < min(spot.high, target.sizes[i])
    return below, above


def _order(
    rounds: Sequence[Round], filled: Sequence[tuple[int, int]], target: TargetIntervals
) -> tuple[int, ...] | None:
    """An order in which no round spoils what another one or the fill has put down before."""
    numbers = tuple(range(len(rounds)))
    return next((o for o in (numbers, numbers[::-1]) if _spoils_nothing([rounds[n] for n in o], filled, target)), None)


def _spoils_nothing(rounds: Sequence[Round], filled: Sequence[tuple[int, int]], target: TargetIntervals) -> bool:
    #: Of each device what must stay, in order: intervals apart from each other.
    kept = [
        [(a, b) for a, b in ((0, low), (high, size)) if a < b]
        for (low, high), size in zip(filled, target.sizes, strict=True)
    ]
    for r in rounds:
        for p in r.pieces:
            offset, end, own = r.offset(p), p.place + p.length, kept[p.device]
            if _meets(own, offset, p.place) or _meets(own, end, offset + r.size):
                return False
            insort(own, (p.place, end))
    return True


def _meets(intervals: Sequence[tuple[int, int]], low: int, high: int) -> bool:
    """Whether one of the ``intervals``, which lie apart and in order, has anything between ``low`` and ``high``."""
    n = bisect_left(intervals, (high, high))
    return low < high and n > 0 and intervals[n - 1][1] > low


def _pieces_of(sources: Iterable[SourceInterval], target: TargetIntervals) -> Iterator[Landing]:
    """The parts of sources in the target intervals, cut where shards end."""
    for source in sources:
        for device, (start, size) in enumerate(zip(target.starts, target.sizes, strict=True)):
            low, high = max(start, source.at), min(start + size, source.at + source.length)
            while low < high:
                element = low - source.at + source.start
                shard = element // source.chunk if source.split else device
                local = element - shard * source.chunk if source.split else element
                length = min(high - low, source.chunk - local)
                yield Landing(source.operand, shard, device, local, length, low - start)
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


def _near(pieces: Iterable[Landing], most: int) -> list[list[Landing]] | None:
    """Pieces from equally distant shards go together, others join where sender and receiver are still free; None where
    that takes more than ``most`` groups."""
    groups: list[list[Landing]] = []
    busy: list[tuple[set[int], set[int]]] = []
    full: dict[tuple[int, int], int] = {}  # (sender, receiver) -> how many groups have no room for them
    for p in sorted(pieces, key=lambda p: (p.shard - p.device, p.device, p.operand)):
        n = full.get((p.shard, p.device), 0)
        while n < len(groups) and (p.shard in busy[n][0] or p.device in busy[n][1]):
            n += 1
        full[p.shard, p.device] = n + 1
        if n == most:
            return None
        if n == len(groups):
            groups.append([])
            busy.append((set(), set()))
        groups[n].append(p)
        busy[n][0].add(p.shard)
        busy[n][1].add(p.device)
    return groups


def _colour(pieces: Sequence[Landing]) -> list[list[Landing]]:
    """As few groups as any device has to send or receive: edges of a bipartite graph coloured (Koenig's theorem).

    A piece takes the first round that is free on both sides; where its sender's and its receiver's free rounds are
    different ones, a chain of pieces that alternate between the two changes sides first.
    """
    taken: dict[tuple[bool, int, int], int] = {}  # (is it a receiver, which device, round) -> piece
    rounds: list[int] = []

    def free(end: tuple[bool, int]) -> int:
        n = 0
        while (*end, n) in taken:
            n += 1
        return n

    def move(chain: Sequence[int], a: int, b: int) -> None:
        for n in chain:
            for end in ((False, pieces[n].shard), (True, pieces[n].device)):
                if taken.get((*end, rounds[n])) == n:
                    del taken[(*end, rounds[n])]
            rounds[n] = a + b - rounds[n]
            taken[(False, pieces[n].shard, rounds[n])] = taken[(True, pieces[n].device, rounds[n])] = n

    for n, p in enumerate(pieces):
        a, b = free((False, p.shard)), free((True, p.device))
        chain: list[int] = []
        end, wanted = (True, p.device), a
        while a != b and (*end, wanted) in taken:
            chain.append(taken[(*end, wanted)])
            q = pieces[chain[-1]]
            end, wanted = ((False, q.shard) if end[0] else (True, q.device)), a + b - wanted
        move(chain, a, b)
        rounds.append(a)
        taken[(False, p.shard, a)] = taken[(True, p.device, a)] = n
    groups: list[list[Landing]] = [[] for _ in range(max(rounds, default=-1) + 1)]
    for p, r in zip(pieces, rounds, strict=True):
        groups[r].append(p)
    return groups


def _round(chunks: dict[int, int], own: bool, pieces: list[Landing]) -> Round:
    """The same elements on every shard if that sends no more, else from where each shard's piece begins."""
    base, total = {}, 0
    for operand in sorted({p.operand for p in pieces}):
        base[operand], total = total, total + chunks[operand]
    size = max(p.length for p in pieces)
    pairs = tuple(sorted((p.shard, p.device) for p in pieces))
    lows = [base[p.operand] + p.low for p in pieces]
    low, high = min(lows), max(n + p.length for n, p in zip(lows, pieces, strict=True))
    if own or high - low == size:
        return Round(base, own, high - low, {p.shard: low for p in pieces}, tuple(pieces), pairs)
    first = {p.shard: min(n, total - size) for n, p in zip(lows, pieces, strict=True)}
    return Round(base, own, size, first, tuple(pieces), pairs)
