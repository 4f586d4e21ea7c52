"""The processes of one node: their memory, their rows in the control table, and the native code that they share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from shardc.collectives.call.control_table import ControlTable, control_table, group_number
from shardc.collectives.call.transport import Transport
from shardc.collectives.engine.engine_calls import Keep, WorkCode, make_object, work_code
from shardc.collectives.shared_memory.heap import NodeHeaps, SharedHeap
from shardc.collectives.shared_memory.native_executor import HELPER, SHARED, shared_ir
from shardc.native.collectives.work import COPY, RESOLVE, ROWS, WORK
from shardc.native.llvm.jit import Loaded, load_object
from shardc.native.llvm.target import Target, host_target
from shardc.native.threads.meeting import ARRIVE

__all__ = ["ComputeNode", "SharedCode", "shared_code"]


@dataclass(frozen=True)
class SharedCode:
    """The collective executor's functions in this process."""

    work: WorkCode
    loaded: Loaded

    @property
    def function(self) -> int:
        """The address of `shardc.collectives.shared_memory.native_executor.SHARED`."""
        return self.loaded.address(SHARED)

    @cached_property
    def arrive(self) -> Callable[[int, int], None]:
        """``arrive(address of a meeting, target)``, see `shardc.native.threads.meeting`."""
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(self.loaded.address(ARRIVE))

    @cached_property
    def help(self) -> Callable[[int], int]:
        """``help(address of a StateRecord)`` completes what is handed over, until it is told to stop."""
        return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(self.loaded.address(HELPER))


@cache
def shared_code(target: Target | None = None, keep: Keep | None = None) -> SharedCode:
    """The collective executor's code for this process, one per ``keep``."""
    target = target or host_target()
    work = work_code(target, keep)
    made = make_object(shared_ir(target), target, keep)
    symbols = {WORK: work.work, RESOLVE: work.resolve, COPY: work.copy, ROWS: work.rows}
    return SharedCode(work, load_object(made, [SHARED, HELPER, ARRIVE], symbols))


@dataclass(frozen=True)
class ComputeNode:
    """The processes of a node and their memory; ``ranks`` are their numbers in the job, by position.

    ``messages`` connects these alone. ``places`` are the positions of a part of a node among all of it. ``spin`` are
    the nanoseconds that a wait watches memory before it sleeps, while those who are missing are fewer than the node's
    ``cores``. ``helper`` says whether a program may have a thread for its transfers.
    """

    heaps: NodeHeaps
    ranks: tuple[int, ...]
    messages: Transport
    code: SharedCode
    spin: int = 0
    cores: int = 1
    helper: bool = False
    places: tuple[int, ...] = ()

    def among(self, ranks: Sequence[int]) -> ComputeNode:
        """Those of the job's ``ranks`` that belong to this node, this process among them."""
        places = tuple(p for p, rank in enumerate(self.ranks) if rank in ranks)
        return replace(
            self,
            heaps=self.heaps.among(places),
            ranks=tuple(self.ranks[p] for p in places),
            messages=self.messages.among(places),
            places=places,
        )

    @property
    def heap(self) -> SharedHeap:
        return self.heaps.mine

    @property
    def position(self) -> int:
        return self.heaps.position

    @cached_property
    def control(self) -> ControlTable:
        """Where everybody is; this process's row has its numbers as soon as somebody looks."""
        group = group_number(self.ranks) if self.places else 0
        table = control_table(self.heaps.maps, self.position, self.heap.fd, group, self.places)
        table.mine["pid"] = self.heaps.offers[self.position].pid
        table.mine["rank"] = self.ranks[self.position]
        return table
