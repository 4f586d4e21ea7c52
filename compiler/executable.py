"""The compiled per-device program: native object, buffer sizes, constants, collective plan. Independent of rank.

The native entry point is a resumable step::

    int32_t step(uint8_t *arena, uint8_t **arguments, uint8_t **results, uint8_t *constants, int32_t device)

It runs to the next collective and returns that `CollectiveCall`'s ``index``, or -1 when the program is done. The
driver performs the collective on the buffers the call names and calls ``step`` again with the same pointers. The
first `ARENA_HEADER` bytes of the arena belong to the step (its resume point lies there); the driver zeroes them
before a run and touches nothing else. ``device`` is the partition id.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shardc.collectives.call import CollectiveCall
from shardc.hlo.sharding import Sharding
from shardc.hlo.types import Shape

__all__ = ["ARENA_HEADER", "ArraySpec", "Executable"]

#: Bytes at the start of the arena that hold the step's resume point. Arenas and buffers are 64-byte aligned.
ARENA_HEADER = 64


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An argument or a result: people's name, global and local shape, layout over the mesh."""

    name: str
    global_shape: Shape
    local_shape: Shape
    sharding: Sharding | None


@dataclass(frozen=True, slots=True)
class Executable:
    """See the module docstring. ``target`` is the LLVM triple and CPU the object was made for.

    ``donated`` are arguments whose memory is free after the step; ``aliases`` are (result, argument) pairs among
    them for which a driver may pass the same pointer. ``features`` are the CPU features that the object uses,
    ``memory`` the bytes of `memory_analysis`, ``seconds`` compile times per stage.
    """

    name: str
    target: str
    object_code: bytes
    symbol: str
    num_devices: int
    arguments: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]
    arena_bytes: int
    constants: bytes
    collectives: tuple[CollectiveCall, ...]
    donated: tuple[int, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    aliases: tuple[tuple[int, int], ...] = ()
    features: str = ""
    memory: dict[str, int] = field(default_factory=dict)
