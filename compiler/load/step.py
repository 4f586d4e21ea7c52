"""Load: an executable becomes a function in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from shardc.compiler.cache.cache import fetch_object
from shardc.compiler.executable import ARENA_HEADER, DONE, Executable, check_error, custom_call_symbol
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.hlo.ir.custom_calls import CustomCalls
from shardc.hlo.units import count_text
from shardc.native.drive.drive_loop import Drive, drive, drive_ir, drive_object
from shardc.native.llvm.jit import Loaded, load_object, undefined_symbols
from shardc.native.llvm.target import Target, host_target
from shardc.native.routines.records import ROUTINE_STEP
from shardc.native.threads.chunk_log import ChunkLog, chunk_log
from shardc.native.threads.pool import PARALLEL, Pool, pool, pool_ir, pool_object

__all__ = [
    "STEP",
    "LoadedStep",
    "aligned_block",
    "call_addresses",
    "load_step",
    "need_machine",
    "pointer_table",
    "run_single",
    "step_drive",
    "step_pool",
]

#: The native entry point, see `compiler/executable.py`.
STEP = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
)


@dataclass(frozen=True, slots=True)
class LoadedStep:
    """The step function in this process: call it like the native one. Its code lives as long as this value."""

    address: int
    function: Callable[..., int]
    keep: Loaded
    #: The threads that its devices run on and its kernels call for help, if there is need.
    pool: Pool | None = None
    #: What these threads did, in a step compiled for profiling.
    log: ChunkLog | None = None

    def __call__(self, arena: Any, arguments: Any, results: Any, constants: Any, device: int) -> int:
        return int(self.function(arena, arguments, results, constants, device))


def load_step(
    executable: Executable, custom_calls: CustomCalls | None = None, config: Config | None = None
) -> LoadedStep:
    """Link ``executable`` into this process; ``custom_calls`` has the addresses of the user's own functions.

    With ``config`` the thread pool's object comes from the cache on disk.
    `EnvironmentProblem` when it was made for another kind of CPU, `InputError` when an address is missing.
    """
    machine = host_target()
    need_machine(executable, executable.target)
    if executable.symbol == ROUTINE_STEP:
        loaded = _linked_objects().load(executable, {})
        threads = step_pool(machine, config) if executable.num_devices > 1 else None
        address = loaded.address(ROUTINE_STEP)
        return LoadedStep(address, STEP(address), loaded, threads)
    needed = undefined_symbols(*executable.objects)
    addresses = call_addresses(executable, needed, custom_calls or {})
    threads = step_pool(machine, config) if PARALLEL in needed or executable.num_devices > 1 else None
    log = None
    if threads is not None and PARALLEL in needed:
        log = chunk_log(threads) if executable.profile is not None else None
        addresses[PARALLEL] = threads.address() if log is None else log.address
    loaded = _linked_objects().load(executable, addresses)
    address = loaded.address(executable.symbol)
    return LoadedStep(address, STEP(address), loaded, threads, log)


class _LinkedObjects:
    """What is linked into this process, as long as somebody uses it: executables of the same code share it."""

    def __init__(self) -> None:
        self._loaded: WeakValueDictionary[object, Loaded] = WeakValueDictionary()

    def load(self, executable: Executable, addresses: Mapping[str, int]) -> Loaded:
        key = (executable.objects, executable.symbol, tuple(sorted(addresses.items())))
        found = self._loaded.get(key)
        if found is None:
            found = self._loaded[key] = load_object(executable.objects, [executable.symbol], addresses)
        return found


@cache
def _linked_objects() -> _LinkedObjects:
    return _LinkedObjects()


def need_machine(executable: Executable, made_for: str) -> None:
    """Raise `EnvironmentProblem` unless this machine runs code for ``made_for`` (a triple and a CPU) with the features
    of ``executable``."""
    machine = host_target()
    wanted = {f for f in executable.features.split(",") if f.startswith("+")}
    missing = sorted(wanted - set(machine.features.split(",")))
    if made_for.partition(" ")[0] != machine.triple or missing:
        lacking = f"; this CPU lacks {', '.join(f[1:] for f in missing)}" if missing else ""
        raise EnvironmentProblem(
            f"{executable.name} was compiled for {made_for}, but this machine is {machine}{lacking}",
            fix="compile the program on this kind of machine",
        )


def step_pool(machine: Target, config: Config | None) -> Pool:
    """The process's threads; with ``config`` their object comes from the cache on disk."""
    if config is None:
        return pool(pool_object(machine))
    return pool(fetch_object(pool_ir(machine), machine, config, partial(pool_object, machine)))


def step_drive(config: Config | None) -> Drive:
    """The loop over a step's collectives; with ``config`` its object comes from the cache on disk."""
    machine = host_target()
    if config is None:
        return drive(drive_object(machine))
    return drive(fetch_object(drive_ir(machine), machine, config, partial(drive_object, machine)))


def call_addresses(executable: Executable, needed: Sequence[str], custom_calls: CustomCalls) -> dict[str, int]:
    """The addresses of users' functions by symbol; `InputError` for one of the ``needed`` that was not given."""
    given = {custom_call_symbol(target): c for target, c in custom_calls.items() if c.address}
    for symbol in needed:
        if symbol.startswith(custom_call_symbol("")) and symbol not in given:
            target = symbol.removeprefix(custom_call_symbol(""))
            raise InputError(
                f"{executable.name} needs a function for custom call {target!r}",
                fix=f"pass it: custom_calls={{{target!r}: shardc.CustomCall(address=...)}}",
            )
    return {symbol: c.address for symbol, c in given.items()}


def run_single(
    executable: Executable, args: Sequence[NDArray[Any]], *, step: LoadedStep | None = None, device: int = 0
) -> list[NDArray[Any]]:
    """Run an executable without collectives on one device; the flattened results.

    Raises `InputError` when the arguments do not fit or a collective comes up, `RunError` when a check is false.
    """
    if len(args) != len(executable.arguments):
        raise InputError(
            f"{executable.name} takes {count_text(len(executable.arguments), 'argument')}, but got {len(args)}"
        )
    blocks = []
    for number, (value, spec) in enumerate(zip(args, executable.arguments, strict=True)):
        array = np.asarray(value)
        shape = spec.local_shape
        if array.shape != shape.dims or array.dtype != shape.dtype.numpy:
            raise InputError(f"argument {number} is {array.dtype}{list(array.shape)}, not {shape}")
        blocks.append(_aligned(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
    outputs = [_aligned(np.zeros(s.local_shape.nbytes, np.uint8)) for s in executable.results]
    constants = _aligned(np.frombuffer(executable.constants, np.uint8))
    arena = _aligned(np.zeros(max(executable.arena_bytes, ARENA_HEADER), np.uint8))
    loaded = step or load_step(executable)
    stop = loaded(arena.ctypes.data, pointer_table(blocks), pointer_table(outputs), constants.ctypes.data, device)
    false = check_error(executable, stop)
    if false is not None:
        raise false
    if stop != DONE:
        raise InputError(f"{executable.name} stopped at collective {stop}", fix="run it on several devices")
    return [
        block.view(spec.local_shape.dtype.numpy).reshape(spec.local_shape.dims)
        for block, spec in zip(outputs, executable.results, strict=True)
    ]


def aligned_block(nbytes: int) -> NDArray[np.uint8]:
    """Uninitialised memory at an address that is a multiple of 64."""
    space = np.empty(nbytes + 64, np.uint8)
    start = -space.ctypes.data % 64
    return space[start : start + nbytes]


def pointer_table(blocks: Sequence[NDArray[np.uint8]]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of ``blocks``, as a step takes arguments and results."""
    return (ctypes.c_void_p * max(1, len(blocks)))(*(b.ctypes.data for b in blocks))


def _aligned(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    out = aligned_block(data.size)
    out[:] = data
    return out
