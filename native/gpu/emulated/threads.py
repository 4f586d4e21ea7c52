"""Emulated kernels compiled, loaded and launched."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from shardc.native.gpu.emulated.records import (
    COPY_BYTES,
    FAULT,
    LAUNCH,
    LAUNCH_BYTES,
    MOST_COPIES,
    SITE_KINDS,
    THREAD_BYTES,
    WARP,
)
from shardc.native.gpu.emulated.scheduler import ORDERS, RUN, scheduler_module
from shardc.native.gpu.problems import GpuFault
from shardc.native.gpu.runtime import LaunchShape
from shardc.native.llvm.jit import Loaded, defined_symbols, load_object
from shardc.native.llvm.target import host_target, target_machine
from shardc.native.llvm.unlocked import emit_object, run_passes
from shardc.native.math.vector import I32

__all__ = ["FORWARD", "REVERSE", "EmulatedModule", "GridFault", "ThreadOrder", "compile_emulated", "load_emulated"]

_GUARD_BYTES, _ALIGN = 1024, 128
#: The record of a launch: fields lie as C's would.
_RECORD = struct.Struct("@" + "".join(f.count * ("i" if f.type == I32 else "q") for f in LAUNCH.values()))


@dataclass(frozen=True, slots=True)
class ThreadOrder:
    """In which order blocks, the warps of a block and the lanes of a warp take their turns."""

    kind: Literal["forward", "reverse", "random"] = "forward"
    seed: int = 0

    @classmethod
    def random(cls, seed: int) -> ThreadOrder:
        """Another order for every seed, the same for the same."""
        return cls("random", seed)


FORWARD, REVERSE = ThreadOrder(), ThreadOrder("reverse")


class GridFault(GpuFault):
    """A kernel broke the rules of the grid: ``kernel``, ``block`` and ``what`` happened."""

    def __init__(self, kernel: str, block: tuple[int, int, int], what: str) -> None:
        super().__init__(what, where=f"kernel {kernel}, block {block}")
        self.kernel, self.block = kernel, block


def compile_emulated(module: ir.Module | str) -> bytes:
    """The object of a module of emulated kernels, for this machine."""
    target = host_target()
    machine = target_machine(target, opt=1)
    parsed = llvm.parse_assembly(str(module), llvm.create_context())
    parsed.triple, parsed.data_layout = target.triple, str(machine.target_data)
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(1)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    run_passes(builder.getModulePassManager(), parsed, builder)
    return emit_object(machine, parsed)


@lru_cache(maxsize=1)
def _scheduler() -> tuple[Loaded, Any]:
    loaded = load_object(compile_emulated(scheduler_module()), [RUN])
    return loaded, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address(RUN))


def load_emulated(objects: bytes | Sequence[bytes]) -> EmulatedModule:
    """Kernels that `compile_emulated` made, ready to be launched."""
    return EmulatedModule([objects] if isinstance(objects, bytes) else list(objects))


class EmulatedModule:
    """Loaded kernels. Example: ``load_emulated(code).launch("add", LaunchShape((4, 1, 1), 256), [x, y], 0)``."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        self.symbols = frozenset(defined_symbols(*objects))
        self._loaded = load_object(list(objects), sorted(self.symbols)) if objects else None

    def launch(
        self, symbol: str, shape: LaunchShape, pointers: Sequence[int], device: int = 0, order: ThreadOrder = FORWARD
    ) -> None:
        """Run a kernel to its end on arrays at ``pointers``. KeyError for a kernel that is not there; `GridFault`."""
        if self._loaded is None or symbol not in self.symbols:
            raise KeyError(symbol)
        if not 0 < shape.threads <= 1024 or min(shape.grid) < 1:
            raise ValueError(f"no launch of {symbol}: {shape}")
        launch = _Launch(shape, self._loaded.address(symbol), pointers, device, order)
        loaded, run = _scheduler()  # held: threads that come first together have one each
        run(launch.address)
        del loaded
        launch.check(symbol)


def _repeated(name: str, value: int) -> list[int]:
    return [value] * LAUNCH[name].count


class _Launch:
    """The record of a launch, and all that it points to, in one piece of memory."""

    def __init__(
        self, shape: LaunchShape, start: int, pointers: Sequence[int], device: int, order: ThreadOrder
    ) -> None:
        blocks = shape.grid[0] * shape.grid[1] * shape.grid[2]
        warps = -(-shape.threads // WARP)
        room = {
            "contexts": warps * WARP * THREAD_BYTES,
            "copies": warps * WARP * MOST_COPIES * COPY_BYTES,
            "shared": shape.shared_bytes + _GUARD_BYTES,
            "arrays": 8 * len(pointers),
            "block_order": 4 * blocks,
            "warp_order": 4 * warps,
            "lane_order": 4 * WARP,
        }
        places, end = {}, -(-LAUNCH_BYTES // _ALIGN) * _ALIGN
        for name, nbytes in room.items():
            places[name] = end
            end += -(-nbytes // _ALIGN) * _ALIGN
        self._shape, self._keep = shape, np.empty(end + _ALIGN, np.uint8)
        self.address = -(-self._keep.ctypes.data // _ALIGN) * _ALIGN
        values = dict.fromkeys(LAUNCH, 0) | {
            "threads": shape.threads,
            "device": device,
            "shared_bytes": shape.shared_bytes,
            "guard_bytes": _GUARD_BYTES,
            "order": ORDERS[order.kind],
            "random": (order.seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**63,
            "start": start,
            **{name: self.address + at for name, at in places.items()},
        }
        self._put(_RECORD.pack(*(v for n in LAUNCH for v in (shape.grid if n == "grid" else _repeated(n, values[n])))))
        self._put(struct.pack(f"<{len(pointers)}Q", *pointers), places["arrays"])

    def _put(self, data: bytes, at: int = 0) -> None:
        ctypes.memmove(self.address + at, data, len(data))

    def _get(self, name: str, count: int) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack(
            f"<{count}i", ctypes.string_at(self.address + LAUNCH[name].at, 4 * count)
        )
        return found

    def check(self, kernel: str) -> None:
        """`GridFault` when something went wrong."""
        (fault,) = self._get("fault", 1)
        if fault == FAULT["none"]:
            return
        x, y, z = self._get("block", 3)
        where = self._get("where", 4)
        if fault == FAULT["diverged"]:
            one, other = (f"thread {where[n]} {_site(where[n + 1])}" for n in (0, 2))
            what = f"threads diverged: {one}, but {other}"
        elif fault == FAULT["shared"]:
            what = f"byte {where[0]} of shared memory was written, but there are {self._shape.shared_bytes}"
        else:
            what = f"thread {where[0]} has more than {MOST_COPIES} copies in flight"
        raise GridFault(kernel, (x, y, z), what)


def _site(number: int) -> str:
    kind = SITE_KINDS[number & 7]
    return "is done" if number == 0 else f"waits at site {number >> 3} ({kind})"
