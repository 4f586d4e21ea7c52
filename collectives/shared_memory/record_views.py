"""Records of `shardc.collectives.shared_memory.records` in IR: fields by name, and a collective that is under way."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from shardc.collectives.shared_memory.records import SLOT_BYTES, SLOTS, CallRecord, ChannelRecord, StateRecord
from shardc.native.llvm.flow import at_byte, number, row_of
from shardc.native.math.vector import I32, I64, PTR, constant

__all__ = ["CollectiveRun", "RecordView", "answer_with", "entry_of", "equals", "function_of", "is_null"]


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record in memory, field by field."""

    b: ir.IRBuilder
    address: ir.Value
    kind: type[ctypes.Structure]

    def at(self, name: str) -> ir.Value:
        return at_byte(self.b, self.address, number(getattr(self.kind, name).offset))

    def get(self, name: str) -> ir.Value:
        pointer = any(f[0] == name and f[1] is ctypes.c_void_p for f in self.kind._fields_)
        return self.b.load(self.at(name), typ=PTR if pointer else I64)

    def put(self, name: str, value: ir.Value | int) -> None:
        self.b.store(number(value) if isinstance(value, int) else value, self.at(name))


@dataclass(frozen=True, slots=True)
class CollectiveRun:
    """A call that is under way, as the functions below see it."""

    b: ir.IRBuilder
    state: RecordView
    call: RecordView
    channel: RecordView

    @staticmethod
    def of(b: ir.IRBuilder, state: ir.Value, call: ir.Value) -> CollectiveRun:
        view = RecordView(b, call, CallRecord)
        return CollectiveRun(
            b, RecordView(b, state, StateRecord), view, RecordView(b, view.get("channel"), ChannelRecord)
        )

    @property
    def slot(self) -> ir.Value:
        return self.b.and_(self.call.get("sequence"), number(SLOTS - 1))

    def meeting(self, offset: int) -> ir.Value:
        """The address of a meeting of the slot."""
        place = self.b.add(self.b.mul(self.slot, number(SLOT_BYTES)), number(offset))
        return at_byte(self.b, self.channel.get("slots"), place)

    def target(self, rounds: int) -> ir.Value:
        """What a meeting's counter is when all have come for the last time of this round, ``rounds`` rounds later."""
        b = self.b
        past = b.ashr(self.call.get("sequence"), number(SLOTS.bit_length() - 1))
        return b.trunc(b.mul(self.channel.get("members"), b.add(past, number(rounds))), I32)

    def record_of(self, member: ir.Value) -> ir.Value:
        """The record of a member."""
        first = row_of(self.b, self.channel.get("records"), member)
        return at_byte(self.b, first, self.b.mul(self.slot, self.channel.get("stride")))


def function_of(module: ir.Module, name: str) -> Any:
    return module.globals[name]


def entry_of(b: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    return b.gep(table, [index], source_etype=I64)


def equals(b: ir.IRBuilder, value: ir.Value, n: int) -> ir.Value:
    return b.icmp_signed("==", value, number(n))


def is_null(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    return b.icmp_unsigned("==", b.ptrtoint(pointer, I64), number(0))


def answer_with(b: ir.IRBuilder, value: int) -> None:
    b.ret(constant(I32, value))
