"""Walk a program for GPUs under emulation, with collectives in NumPy: a simple second reading of `GpuProgram`.

Every device is a generator that stops at collectives; all must stop at the same one. Memory that nobody has written
holds NaN, donated arguments may or may not be the memory of their results, and an asynchronous collective happens when
it is awaited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.compiler.cache.serialize import read_bytes, to_bytes
from shardc.compiler.emit.gpu_executable import build_gpu_executable
from shardc.compiler.executable import ARENA_HEADER, Executable
from shardc.compiler.gpu_program import (
    AwaitCollective,
    CheckStep,
    ChoiceStep,
    CopyStep,
    FillStep,
    GpuStep,
    HostStep,
    LaunchStep,
    RepeatStep,
    StartCollective,
    leaf_steps,
)
from shardc.compiler.load.gpu import host_kernels
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.native.gpu.emulated.threads import FORWARD, EmulatedModule, ThreadOrder, load_emulated
from shardc.native.gpu.target import gpu_target

Array = np.ndarray[Any, Any]

EMULATED = gpu_target("cuda-emulated")
_REDUCE: dict[str, Any] = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip


def built(module: Module, config: Config | None = None) -> Executable:
    """The program for the emulation, written to a file and read again."""
    executable = build_gpu_executable(module, config or Config(check=True), EMULATED)
    again = read_bytes(to_bytes(executable))
    assert again == executable
    return again


def memory(nbytes: int, content: bytes = b"") -> Array:
    """Bytes at a multiple of 256, NaN but for ``content``."""
    raw = np.full(nbytes + 512, 0xFF, np.uint8)
    start = -raw.ctypes.data % 256
    raw[start : start + len(content)] = np.frombuffer(content, np.uint8)
    return raw[start : start + nbytes]


class Device:
    """One device's memory; ``shared`` donated arguments are the memory of their results."""

    def __init__(self, executable: Executable, arguments: Sequence[Array], number: int, shared: bool) -> None:
        self.executable, self.number = executable, number
        data = [np.ascontiguousarray(a).tobytes() for a in arguments]
        results = [memory(s.local_shape.nbytes) for s in executable.results]
        places = [memory(len(d), d) for d in data]
        for result, argument in executable.aliases if shared else ():
            results[result][:] = places[argument]
            places[argument] = results[result]
        self.spaces: dict[str, list[Array]] = {
            "arena": [memory(max(executable.arena_bytes, ARENA_HEADER))],
            "argument": places,
            "result": results,
            "constant": [memory(len(executable.constants), executable.constants)],
        }

    def bytes(self, ref: BufferRef) -> Array:
        return self.spaces[ref.space][ref.index][ref.offset : ref.offset + ref.nbytes]

    def addresses(self, refs: Sequence[BufferRef]) -> list[int]:
        return [self.spaces[r.space][r.index].ctypes.data + r.offset for r in refs]

    def results(self) -> list[Array]:
        specs = [s.local_shape for s in self.executable.results]
        return [r.view(s.dtype.numpy).reshape(s.dims).copy() for r, s in zip(self.spaces["result"], specs, strict=True)]


class CheckFailed(Exception):
    """A check was false."""


class Walk:
    def __init__(self, executable: Executable, order: ThreadOrder) -> None:
        assert executable.gpu is not None
        self.program, self.order = executable.gpu, order
        self.modules: dict[str, EmulatedModule] = {}
        for image in self.program.images:
            module = load_emulated([image.data])
            self.modules |= dict.fromkeys(module.symbols, module)
        self.host = host_kernels(executable)

    def run(self, device: Device) -> Iterator[tuple[int, bool]]:
        """Yields (collective, is it awaited) where devices meet."""
        yield from self._block(self.program.steps, device)

    def _block(self, steps: Sequence[GpuStep], d: Device) -> Iterator[tuple[int, bool]]:
        for step in steps:
            if isinstance(step, StartCollective | AwaitCollective):
                yield step.index, isinstance(step, AwaitCollective)
            elif isinstance(step, RepeatStep):
                yield from self._repeat(step, d)
            elif isinstance(step, ChoiceStep):
                where = d.bytes(step.selector)
                n = int(where[0] == 0) if step.logical else int(where.view(np.int32)[0])
                last = len(step.branches) - 1
                yield from self._block(step.branches[n if 0 <= n <= last else last], d)
            else:
                self._leaf(step, d)

    def _repeat(self, step: RepeatStep, d: Device) -> Iterator[tuple[int, bool]]:
        trips = 0
        while True:
            yield from self._block(step.condition, d)
            if not d.bytes(step.predicate)[0]:
                break
            yield from self._block(step.body, d)
            trips += 1
        assert step.trips in (None, trips)

    def _leaf(self, step: GpuStep, d: Device) -> None:
        if isinstance(step, LaunchStep):
            module = self.modules[step.symbol]
            module.launch(step.symbol, step.shape, d.addresses(step.places), d.number, self.order)
        elif isinstance(step, CopyStep):
            d.bytes(step.target)[:] = d.bytes(step.source).copy()
        elif isinstance(step, FillStep):
            d.bytes(step.place)[:] = step.byte
        elif isinstance(step, CheckStep):
            if not d.bytes(step.predicate)[0]:
                raise CheckFailed(d.executable.checks[step.index].target)
        else:
            assert isinstance(step, HostStep)
            tables = [np.array(d.addresses(refs), np.uint64) for refs in (step.operands, step.results)]
            self.host.functions[step.symbol](tables[0].ctypes.data, tables[1].ctypes.data, d.number)


def run(
    executable: Executable, arguments: Sequence[Sequence[Array]], *, shared: bool = False, order: ThreadOrder = FORWARD
) -> list[list[Array]]:
    """Results by device; ``arguments`` are those of each device."""
    devices = [Device(executable, a, n, shared) for n, a in enumerate(arguments)]
    walk = Walk(executable, order)
    runs = [walk.run(d) for d in devices]
    calls = {c.index: c for c in executable.collectives}
    started: dict[int, list[list[Array]]] = {}
    while True:
        stops = [next(r, None) for r in runs]
        assert len(set(stops)) == 1, "devices took different branches"
        if stops[0] is None:
            return [d.results() for d in devices]
        index, awaited = stops[0]
        call = calls[index]
        if not awaited:
            started[index] = _results(call, devices)
            for d in devices if call.asynchronous else ():
                for o in call.operands:  # until it is awaited nobody may look
                    if o.result != o.operand:
                        d.bytes(o.result)[:] = 0xFF
        if awaited or not call.asynchronous:
            for d, values in zip(devices, started.pop(index), strict=True):
                for o, value in zip(call.operands, values, strict=True):
                    d.bytes(o.result)[:] = value.view(np.uint8).reshape(-1)


def _results(call: CollectiveCall, devices: Sequence[Device]) -> list[list[Array]]:
    """What ``call`` gives, by device and operand."""
    out: list[list[Array]] = [[] for _ in devices]
    for o in call.operands:
        values = [d.bytes(o.operand).copy().view(o.dtype.numpy) for d in devices]
        if call.op == "collective-permute":
            sources = {t: s for s, t in call.groups.expand()}
            for n, mine in enumerate(values):
                out[n].append(values[sources[n]] if n in sources else np.zeros_like(mine))
            continue
        groups = call.groups.expand() or (tuple(range(len(devices))),)
        for group in groups:
            members = [values[n] for n in group]
            for position, n in enumerate(group):
                out[n].append(_member(call, members, position))
    return out


def _member(call: CollectiveCall, members: Sequence[Array], position: int) -> Array:
    if call.op == "all-gather":
        return np.concatenate(members)
    chunks = [np.split(m, len(members)) for m in members] if call.op in ("reduce-scatter", "all-to-all") else []
    if call.op == "all-to-all":
        return np.concatenate([c[position] for c in chunks])
    parts = [c[position] for c in chunks] if chunks else list(members)
    return np.ascontiguousarray(reduce(_REDUCE[call.reduction], parts).astype(parts[0].dtype))


def hosts(executable: Executable) -> list[str]:
    """The instructions that run on the host."""
    assert executable.gpu is not None
    return [s.name for s in leaf_steps(executable.gpu.steps) if isinstance(s, HostStep)]
