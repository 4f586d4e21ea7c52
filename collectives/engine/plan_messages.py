"""Which messages a collective needs between nodes, and what each process computes: a list of steps per process.

A *node* is a set of processes that can address each other's memory; alone, a process is a node of its own. Everything
moves directly from where it is to where it is needed, and complete subtrees of the fixed reduction tree are reduced
before they travel. Within a node every byte has one *handler*: the process that reads the node's operands there, sends
and receives for all, and writes the results of all the node's devices. So the processes of a node share the work and
the messages, and need to meet only when they begin and when they end.

==================== ===================================================================================================
all-reduce           few bytes: every node gets the subtrees of all and reduces everything. Else each node reduces a
                     range, then ranges are exchanged: 2 R (k - 1) / k bytes sent by each of k nodes
all-gather           the node of each operand sends it to every other node once
reduce-scatter       chunk q goes, as subtrees, to the owner of the device at position q
all-to-all, permute  owner to owner
ragged-all-to-all    the same, in two rounds: sizes and targets of updates; then of each update its rows, if it has any
==================== ===================================================================================================

Both sides of a message list its pieces in the same order, as both go through the groups, operands and ranges alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.reduction import keeps_partial_sums
from shardc.collectives.engine.plan_rows import SIZES, TARGETS, RaggedPlan
from shardc.collectives.engine.ranges import OperandRange, own_ranges, stand_ins, whole_ranges
from shardc.collectives.engine.steps import (
    HEADER_BYTES,
    ArriveStep,
    AwaitArrivalStep,
    BeginStep,
    BringBackStep,
    CheckHeaderStep,
    CopyBytesStep,
    HeaderStep,
    ImportStep,
    MessageStep,
    PublishStep,
    ReceiveStep,
    ReduceStep,
    SendStep,
    StepPlace,
    WaitStep,
    ZeroStep,
)
from shardc.collectives.engine.subtrees import Subtree, combine, subtrees

__all__ = ["MessageLimits", "MessagePlan", "Topology", "plan_messages"]

#: Scratch memory is handed out in multiples of this, and ranges are cut at multiples of it, in bytes.
_LINE = 64


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """``message`` bounds the bytes of one message. Up to ``packed`` bytes between two processes travel with their
    header. An all-reduce sends whole operands to everybody when that is at most ``whole`` bytes more than cutting
    them."""

    message: int = 1 << 30
    packed: int = 1 << 14
    whole: int = 1 << 15


@dataclass(frozen=True, slots=True)
class Topology:
    """``owner[d]`` is the process of device d, ``node[p]`` the node of process p."""

    owner: tuple[int, ...]
    node: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MessagePlan:
    """The ``steps`` of one process in one collective, which need ``scratch`` bytes."""

    steps: tuple[MessageStep, ...]
    scratch: int


def plan_messages(
    call: CollectiveCall,
    members: Sequence[tuple[int, ...]],
    topology: Topology,
    me: int,
    limits: MessageLimits | None = None,
    *,
    together: bool = False,
) -> MessagePlan:
    """The steps of process ``me``; ``members`` are all groups (or pairs) of the call, as device numbers.

    ``together``: other processes of this node take part, with which it meets at the beginning and the end.
    """
    planner = _MessagePlanner(call, topology, me, limits or MessageLimits())
    mine = [g for g in members if any(topology.node[topology.owner[d]] == topology.node[me] for d in g)]
    make = {
        "all-reduce": planner.all_reduce,
        "all-gather": planner.all_gather,
        "reduce-scatter": planner.reduce_scatter,
        "all-to-all": planner.all_to_all,
        "ragged-all-to-all": planner.exchange_rows,
    }.get(call.op)
    for group in mine:
        if make is not None:
            make(group)
        else:
            planner.permute(group)
    if make is None:
        planner.clear(frozenset(target for _, target in members))
    return MessagePlan(tuple(planner.steps(together)), planner.scratch)


@dataclass(slots=True)
class _OperandPiece:
    """Bytes in a message; where they arrive is settled when the message is laid out, unless ``place`` says it."""

    nbytes: int
    place: StepPlace | None = None


@dataclass(slots=True)
class _Mail:
    """What goes to and comes from other processes, in one exchange."""

    outgoing: dict[int, list[_OperandPiece]] = field(default_factory=dict)
    incoming: dict[int, list[_OperandPiece]] = field(default_factory=dict)


class _MessagePlanner:
    def __init__(self, call: CollectiveCall, topology: Topology, me: int, limits: MessageLimits) -> None:
        self.call = call
        self.topology = topology
        self.me = me
        self.here = topology.node[me]
        self.limits = limits
        self.scratch = 0
        self.before: list[MessageStep] = []
        self.first = _Mail()
        self.between: list[Callable[[], Iterator[MessageStep]]] = []
        self.second = _Mail()
        self.after: list[MessageStep] = []

    # What is where.

    def take(self, nbytes: int) -> StepPlace:
        """Fresh scratch memory."""
        place = StepPlace("scratch", 0, 0, self.scratch)
        self.scratch += -(-nbytes // _LINE) * _LINE
        return place

    def node_of(self, device: int) -> int:
        return self.topology.node[self.topology.owner[device]]

    def processes(self, group: Sequence[int]) -> dict[int, list[int]]:
        """The processes of a group by node; both in order of position."""
        found: dict[int, list[int]] = {}
        for device in group:
            process = self.topology.owner[device]
            of_node = found.setdefault(self.topology.node[process], [])
            if process not in of_node:
                of_node.append(process)
        return found

    def results(self, group: Sequence[int], index: int, offset: int) -> tuple[StepPlace, ...]:
        """A place in the results of this node's members; first those of this process."""
        local = [d for d in group if self.node_of(d) == self.here]
        local.sort(key=lambda d: self.topology.owner[d] != self.me)
        return tuple(StepPlace("result", d, index, offset) for d in local)

    # The collectives.

    def all_reduce(self, group: Sequence[int]) -> None:
        processes = self.processes(group)
        if self.here not in processes:
            return
        nbytes = sum(o.operand.nbytes for o in self.call.operands)
        whole = nbytes * (len(processes) - 2) <= self.limits.whole
        for index, o in enumerate(self.call.operands):
            cut = whole_ranges if whole else own_ranges
            for part in cut(processes, o.operand.nbytes, max(_LINE, o.dtype.nbytes)):
                self._reduce_range(group, index, part, part.lo, self.results(group, index, part.lo))

    def reduce_scatter(self, group: Sequence[int]) -> None:
        processes = self.processes(group)
        for index, o in enumerate(self.call.operands):
            chunk = o.operand.nbytes // len(group)
            for q, device in enumerate(group):
                owner = self.topology.owner[device]
                handlers = stand_ins(processes, owner, self.topology.node[owner])
                part = OperandRange(q * chunk, (q + 1) * chunk, handlers, (self.node_of(device),))
                self._reduce_range(group, index, part, None, (StepPlace("result", device, index, 0),))

    def all_gather(self, group: Sequence[int]) -> None:
        processes = self.processes(group)
        for index, o in enumerate(self.call.operands):
            for p, device in enumerate(group):
                owner = self.topology.owner[device]
                handlers = stand_ins(processes, owner, self.topology.node[owner])
                if handlers.get(self.here) != self.me:
                    continue
                nbytes = o.operand.nbytes
                targets = self.results(group, index, p * nbytes)
                if owner == self.me:
                    operand = StepPlace("operand", device, index, 0)
                    for node, process in handlers.items():
                        if node != self.here:
                            self._send(self.first, process, operand, nbytes)
                    self._copy(self.before, operand, targets, nbytes)
                else:
                    self._receive(self.first, owner, nbytes, targets[0])
                    self._copy(self.after, targets[0], targets[1:], nbytes)

    def all_to_all(self, group: Sequence[int]) -> None:
        for index, o in enumerate(self.call.operands):
            chunk = o.operand.nbytes // len(group)
            ours = [(q, d) for q, d in enumerate(group) if self.topology.owner[d] == self.me]
            for p, source in enumerate(group):
                for q, target in enumerate(group) if self.topology.owner[source] == self.me else ours:
                    operand = StepPlace("operand", source, index, q * chunk)
                    self._move(source, operand, target, StepPlace("result", target, index, p * chunk), chunk)

    def exchange_rows(self, group: Sequence[int]) -> None:
        owner = self.topology.owner
        mine = frozenset(d for d in group if owner[d] == self.me)
        near = frozenset(d for d in group if self.node_of(d) == self.here)
        rows = RaggedPlan(self.call, group, mine, near, owner, self.limits.message)
        told: dict[tuple[int, int, int], _OperandPiece] = {}
        for sender, receiver in rows.far_pairs():
            for table in (SIZES, TARGETS):
                if sender in mine:
                    self._send(self.first, owner[receiver], rows.table(table, sender, receiver), rows.chunk)
                else:
                    told[table, sender, receiver] = self._receive(self.first, owner[sender], rows.chunk)

        def steps() -> Iterator[MessageStep]:
            return rows.steps({key: piece.place for key, piece in told.items() if piece.place is not None})

        self.between.append(steps)
        if any(True for _ in rows.far_pairs()):
            self.after = [WaitStep(sum(o.operand.nbytes for o in self.call.operands[:2]))]

    def permute(self, pair: Sequence[int]) -> None:
        source, target = pair
        for index, o in enumerate(self.call.operands):
            operand, result = StepPlace("operand", source, index, 0), StepPlace("result", target, index, 0)
            self._move(source, operand, target, result, o.operand.nbytes)

    def clear(self, targets: frozenset[int]) -> None:
        """Devices that nobody sends to get zeros."""
        for device, owner in enumerate(self.topology.owner):
            if owner == self.me and device not in targets:
                for index, o in enumerate(self.call.operands):
                    self.before.append(ZeroStep(StepPlace("result", device, index, 0), o.result.nbytes))

    # Their parts.

    def _move(self, source: int, operand: StepPlace, target: int, result: StepPlace, nbytes: int) -> None:
        """From a device to a device: the target's owner reads what it can address."""
        sender, receiver = self.topology.owner[source], self.topology.owner[target]
        if self.topology.node[sender] == self.topology.node[receiver]:
            if receiver == self.me:
                self._copy(self.before, operand, (result,), nbytes)
        elif sender == self.me:
            self._send(self.first, receiver, operand, nbytes)
        elif receiver == self.me:
            self._receive(self.first, sender, nbytes, result)

    def _reduce_range(
        self, group: Sequence[int], index: int, part: OperandRange, spread: int | None, targets: tuple[StepPlace, ...]
    ) -> None:
        """Bring the subtrees of a range to the nodes that reduce it, and then to all if only one does.

        ``spread`` is where the total belongs in everybody's result, None if it goes to ``targets`` alone.
        """
        nbytes = part.hi - part.lo
        if not nbytes or part.handlers.get(self.here) != self.me:
            return
        dtype = self.call.operands[index].dtype
        nodes = [self.node_of(d) for d in group]
        trees = subtrees(nodes, partial=keeps_partial_sums(dtype))
        mine = {t: self._partial(group, index, t, part) for t in trees if t.owner == self.here}
        for node in part.reducers:
            if node != self.here:
                for place in mine.values():
                    self._send(self.first, part.handlers[node], place, nbytes)
        if self.here in part.reducers:
            found: list[tuple[Subtree, StepPlace | _OperandPiece]] = [
                (t, mine[t] if t in mine else self._receive(self.first, part.handlers[t.owner], nbytes)) for t in trees
            ]
            self.between.append(partial(self._total, index, found, targets, nbytes // dtype.nbytes))
        if spread is not None and len(part.reducers) == 1:
            self._spread(part, targets, nbytes)

    def _partial(self, group: Sequence[int], index: int, tree: Subtree, part: OperandRange) -> StepPlace:
        """What this node's members of a subtree amount to; a single member's operand stays where it is."""
        places = [StepPlace("operand", d, index, part.lo) for d in group[tree.lo : tree.lo + tree.width]]
        if len(places) == 1:
            return places[0]
        nbytes = part.hi - part.lo
        total = self.take(nbytes)
        self.before.append(ReduceStep(index, tuple(places), (total,), nbytes // self.call.operands[index].dtype.nbytes))
        return total

    def _total(
        self,
        index: int,
        found: list[tuple[Subtree, StepPlace | _OperandPiece]],
        targets: tuple[StepPlace, ...],
        count: int,
    ) -> Iterator[MessageStep]:
        """The rest of the tree, when all subtrees are there."""
        steps: list[MessageStep] = []

        def reduce(pair: Sequence[StepPlace]) -> StepPlace:
            total = self.take(count * self.call.operands[index].dtype.nbytes)
            steps.append(ReduceStep(index, tuple(pair), (total,), count))
            return total

        places: list[tuple[Subtree, StepPlace]] = []
        for tree, value in found:
            place = value.place if isinstance(value, _OperandPiece) else value
            assert place is not None
            places.append((tree, place))
        last = combine(places, reduce)
        yield from steps
        yield ReduceStep(index, tuple(last), targets, count)

    def _spread(self, part: OperandRange, targets: tuple[StepPlace, ...], nbytes: int) -> None:
        (node,) = part.reducers
        if node == self.here:
            for other, process in part.handlers.items():
                if other != node:
                    self._send(self.second, process, targets[0], nbytes)
        else:
            self._receive(self.second, part.handlers[node], nbytes, targets[0])
            self._copy(self.after, targets[0], targets[1:], nbytes)

    def _send(self, mail: _Mail, process: int, place: StepPlace, nbytes: int) -> None:
        if nbytes:
            mail.outgoing.setdefault(process, []).append(_OperandPiece(nbytes, place))

    def _receive(self, mail: _Mail, process: int, nbytes: int, place: StepPlace | None = None) -> _OperandPiece:
        piece = _OperandPiece(nbytes, place)
        if nbytes:
            mail.incoming.setdefault(process, []).append(piece)
        return piece

    @staticmethod
    def _copy(steps: list[MessageStep], source: StepPlace, targets: tuple[StepPlace, ...], nbytes: int) -> None:
        if nbytes and targets:
            steps.append(CopyBytesStep(source, targets, nbytes))

    # Putting it in order.

    def steps(self, together: bool) -> Iterator[MessageStep]:
        yield BeginStep()
        if together:
            yield from (PublishStep(), ArriveStep(False), AwaitArrivalStep(False), ImportStep())
        yield from self.before
        yield from self._announce(self.first)
        for make in self.between:
            yield from make()
        bodies = list(self._bodies(self.second.outgoing, self.second.incoming, 2))
        if bodies:
            yield from bodies
            yield WaitStep(_bytes_of(self.second.outgoing, self.second.incoming))
        yield from self.after
        if together:
            yield from (ArriveStep(True), AwaitArrivalStep(True), BringBackStep())

    def _announce(self, mail: _Mail) -> Iterator[MessageStep]:
        """An exchange of messages that say what they belong to: few bytes at once, more when all have been heard."""
        if not mail.outgoing and not mail.incoming:
            return
        buffers = {p: self.take(HEADER_BYTES + self.limits.packed) for p in mail.incoming}
        for process, buffer in buffers.items():
            yield ReceiveStep(process, buffer, HEADER_BYTES + self.limits.packed, 0)
        header: StepPlace | None = None
        long_out: dict[int, list[_OperandPiece]] = {}
        for process, pieces in mail.outgoing.items():
            if self._is_short(pieces):
                yield from self._send_packed(process, pieces)
                continue
            long_out[process] = pieces
            if header is None:
                header = self.take(HEADER_BYTES)
                yield HeaderStep(header)
            yield SendStep(process, header, HEADER_BYTES, 0)
        yield WaitStep(0)
        for process, buffer in buffers.items():
            yield CheckHeaderStep(process, buffer)
        long_in = {p: pieces for p, pieces in mail.incoming.items() if not self._is_short(pieces)}
        if long_in or long_out:
            yield from self._bodies(long_out, long_in, 1)
            yield WaitStep(_bytes_of(long_out, long_in))
        for process, buffer in buffers.items():
            if process not in long_in:
                yield from _unpack(mail.incoming[process], buffer)

    def _is_short(self, pieces: Sequence[_OperandPiece]) -> bool:
        return sum(_pad(p.nbytes) for p in pieces) <= self.limits.packed

    def _send_packed(self, process: int, pieces: Sequence[_OperandPiece]) -> Iterator[MessageStep]:
        """One message of header and pieces."""
        total = HEADER_BYTES + sum(_pad(p.nbytes) for p in pieces)
        buffer = self.take(total)
        yield HeaderStep(buffer)
        at = buffer.at(HEADER_BYTES)
        for piece in pieces:
            assert piece.place is not None
            yield CopyBytesStep(piece.place, (at,), piece.nbytes)
            at = at.at(_pad(piece.nbytes))
        yield SendStep(process, buffer, total, 0)

    def _bodies(
        self, outgoing: dict[int, list[_OperandPiece]], incoming: dict[int, list[_OperandPiece]], kind: int
    ) -> Iterator[MessageStep]:
        """Messages without headers, a piece each, cut where they are too long."""
        for process, pieces in incoming.items():
            for piece in pieces:
                if piece.place is None:
                    piece.place = self.take(piece.nbytes)
                for lo, nbytes in self._cut(piece.nbytes):
                    yield ReceiveStep(process, piece.place.at(lo), nbytes, kind)
        for process, pieces in outgoing.items():
            for piece in pieces:
                assert piece.place is not None
                for lo, nbytes in self._cut(piece.nbytes):
                    yield SendStep(process, piece.place.at(lo), nbytes, kind)

    def _cut(self, nbytes: int) -> Iterator[tuple[int, int]]:
        for lo in range(0, nbytes, self.limits.message):
            yield lo, min(self.limits.message, nbytes - lo)


def _pad(nbytes: int) -> int:
    """Pieces in a message begin where any type may."""
    return -(-nbytes // 16) * 16


def _unpack(pieces: Sequence[_OperandPiece], buffer: StepPlace) -> Iterator[MessageStep]:
    at = buffer.at(HEADER_BYTES)
    for piece in pieces:
        if piece.place is None:
            piece.place = at
        else:
            yield CopyBytesStep(at, (piece.place,), piece.nbytes)
        at = at.at(_pad(piece.nbytes))


def _bytes_of(*mails: dict[int, list[_OperandPiece]]) -> int:
    return sum(p.nbytes for mail in mails for pieces in mail.values() for p in pieces)
