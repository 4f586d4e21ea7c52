"""Pair transfers: a send and the recv on its channel, between devices that the program names, are one permute."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.groups import ListPairs
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import constant, make, map_computations
from shardc.hlo.ir.participants import Pairs, transfer_pairs

__all__ = ["PairTransfers"]

_SENDS, _DONES = ("send", "recv"), ("send-done", "recv-done")
_CONTEXT = np.zeros((), np.uint32)


@dataclass(frozen=True, slots=True)
class PairTransfers:
    """Rewrite sends and receives, which meet in the order of the program, as collective-permutes."""

    name: str = "pair-transfers"
    why: str = "every device runs the same program, so a send and its receive are one operation"
    looks_at: ClassVar[frozenset[str]] = frozenset({*_SENDS, *_DONES})

    def run(self, module: Module) -> Module:
        return map_computations(module, _pair)


def _pair(computation: Computation) -> Computation:
    partners = _partners(computation)
    if not partners:
        return computation
    ordered = Computation(computation.name, _order(computation, partners), computation.root)
    moved: dict[Instruction, Instruction] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode in _DONES and old.operands[0].opcode in _SENDS:
            parts = operands[0].operands
            return parts[2] if old.opcode == "send-done" else make("tuple", old.shape, (parts[0], parts[2]), old)
        if old.opcode == "send":
            pairs = ListPairs(transfer_pairs(old) or ())
            moved[old] = make(
                "collective-permute",
                operands[0].shape.plain,
                operands[:1],
                old,
                source_target_pairs=pairs,
                channel_id=1,
            )
            return _triple(old, operands[0], operands[-1])
        if old.opcode == "recv":
            return _triple(old, moved[partners[old]], operands[-1])
        return None

    return rebuild_computation(ordered, change)


def _triple(old: Instruction, data: Instruction, token: Instruction) -> Instruction:
    """(data, context, token), as a send or recv gives it."""
    return make("tuple", old.shape, (data, constant(Literal(_CONTEXT), old), token), old)


def _partners(computation: Computation) -> dict[Instruction, Instruction]:
    """The send of every recv. `UnsupportedError` for what crosses the border of the computation or of the program."""
    channels: dict[tuple[int, Pairs], tuple[list[Instruction], list[Instruction]]] = defaultdict(lambda: ([], []))
    for i in computation:
        if i.opcode in _SENDS:
            pairs = transfer_pairs(i)
            if pairs is None or i.attrs.get("is_host_transfer"):
                raise _unsupported(i, "exchanges data with the host, or with devices that it does not name")
            channels[i.attrs.get("channel_id", 0), pairs][i.opcode == "recv"].append(i)
    found: dict[Instruction, Instruction] = {}
    for sends, receives in channels.values():
        if len(sends) != len(receives):
            raise _unsupported((sends or receives)[-1], "has no partner with its channel and pairs in its computation")
        for send, recv in zip(sends, receives, strict=True):
            data = recv.shape.elements[0]
            if not data.is_array or data.plain is not send.operands[0].shape.plain:
                raise _unsupported(recv, f"receives {data}, and {send.operands[0].shape} is sent")
            found[recv] = send
    return found


def _order(computation: Computation, partners: dict[Instruction, Instruction]) -> list[Instruction]:
    """Operands first, and every recv after its send."""
    order: dict[Instruction, None] = {}
    open_: set[Instruction] = set()
    for root in computation:
        stack = [(root, False)]
        while stack:
            i, ready = stack.pop()
            if ready:
                open_.discard(i)
                order[i] = None
            elif i in open_:
                raise _unsupported(i, "waits for itself: what is sent depends on what is received")
            elif i not in order:
                open_.add(i)
                stack.append((i, True))
                needs = (*i.operands, partners[i]) if i in partners else i.operands
                stack.extend((o, False) for o in needs if o not in order)
    return list(order)


def _unsupported(i: Instruction, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{i.opcode} {what}",
        where=i.place,
        fix="use collective-permute between devices; move transfers with the host out of the program",
    )
