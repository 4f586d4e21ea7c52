"""Which messages a ragged exchange needs between nodes once the sizes are known, see
`shardc.collectives.engine.plan_messages`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.collectives.call.call import CollectiveCall, RaggedShape
from shardc.collectives.engine.steps import (
    CheckRowsStep,
    CopyRowsStep,
    MessageStep,
    ReceiveRowsStep,
    RowPart,
    RowTables,
    SendRowsStep,
    StepPlace,
)

__all__ = ["SIZES", "TARGETS", "RaggedPlan"]

#: Operands of the call, and the bytes of a number in its tables.
_DATA, _OUTPUT, _STARTS, SIZES, TARGETS, _RECEIVED = range(6)
_WORD = 8
#: Of messages, see `shardc.collectives.engine.steps.SendStep`.
_KIND = 2


@dataclass(frozen=True)
class RaggedPlan:
    """One group of a ragged exchange: the part of the process whose devices are ``mine``; it can address ``near``
    devices, and ``owner`` has the process of each. Messages have up to ``most`` bytes."""

    call: CollectiveCall
    group: Sequence[int]
    mine: frozenset[int]
    near: frozenset[int]
    owner: Sequence[int]
    most: int

    @property
    def chunk(self) -> int:
        """Bytes of what a sender's table says to one receiver."""
        return self.call.operands[SIZES].operand.nbytes // len(self.group)

    def far_pairs(self) -> Iterator[tuple[int, int]]:
        """(sender, receiver) that need messages of this process, in an order that is the same at both."""
        for sender in self.group:
            for receiver in self.group:
                if (sender in self.mine and receiver not in self.near) or (
                    receiver in self.mine and sender not in self.near
                ):
                    yield sender, receiver

    def table(self, operand: int, sender: int, receiver: int) -> StepPlace:
        """Where a sender has what its table says to a receiver."""
        return StepPlace("operand", sender, operand, self.group.index(receiver) * self.chunk)

    def steps(self, told: Mapping[tuple[int, int, int], StepPlace]) -> Iterator[MessageStep]:
        """What there is to do when tables have come; ``told`` are those of far senders, by operand, sender and
        receiver."""
        receivers = [d for d in self.group if d in self.mine]
        tables = {d: self._tables(d, told) for d in receivers}
        for d in receivers:
            yield CheckRowsStep(tables[d])
        for d in receivers:
            data = tuple(StepPlace("operand", s, _DATA, 0) if s in self.near else None for s in self.group)
            output, result = StepPlace("operand", d, _OUTPUT, 0), StepPlace("result", d, _OUTPUT, 0)
            yield CopyRowsStep(tables[d], data, output, result)
        for sender, receiver in self.far_pairs():
            yield from self._messages(sender, receiver, told)

    def _tables(self, receiver: int, told: Mapping[tuple[int, int, int], StepPlace]) -> RowTables:
        def of(operand: int) -> tuple[StepPlace, ...]:
            return tuple(
                told.get((operand, s, receiver)) or self.table(operand, s if s in self.near else receiver, receiver)
                for s in self.group
            )

        starts = tuple(self.table(_STARTS, s, receiver) if s in self.near else None for s in self.group)
        received = StepPlace("operand", receiver, _RECEIVED, 0)
        return RowTables(receiver, tuple(self.group), starts, of(SIZES), of(TARGETS), received)

    def _messages(
        self, sender: int, receiver: int, told: Mapping[tuple[int, int, int], StepPlace]
    ) -> Iterator[MessageStep]:
        """Each update's rows, cut where they are too long."""
        shape = self._shape
        sends = sender in self.mine
        sizes = self.table(SIZES, sender, receiver) if sends else told.get((SIZES, sender, receiver))
        begins = self.table(_STARTS, sender, receiver) if sends else told.get((TARGETS, sender, receiver))
        place = StepPlace("operand", sender, _DATA, 0) if sends else StepPlace("result", receiver, _OUTPUT, 0)
        longest = min(shape.data_rows, shape.output_rows) * shape.row_bytes
        for at in range(0, self.chunk, _WORD):
            for low in range(0, longest, self.most):
                assert sizes is not None and begins is not None
                rows = shape.data_rows if sends else shape.output_rows
                part = RowPart(place, begins.at(at), sizes.at(at), rows, low, min(self.most, longest - low))
                if sends:
                    yield SendRowsStep(self.owner[receiver], part, _KIND)
                else:
                    yield ReceiveRowsStep(self.owner[sender], part, _KIND)

    @property
    def _shape(self) -> RaggedShape:
        assert self.call.ragged is not None
        return self.call.ragged
