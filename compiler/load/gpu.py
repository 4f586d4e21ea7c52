"""Load the code of a program for GPUs: what a device takes of it, and the kernels that run on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardc.compiler.executable import Executable
from shardc.compiler.gpu_program import GpuProgram, HostStep, leaf_steps
from shardc.compiler.load.step import call_addresses, need_machine, step_pool
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem
from shardc.native.gpu.runtime import Image
from shardc.native.gpu.target import GpuTarget
from shardc.native.llvm.jit import Loaded, load_object, undefined_symbols
from shardc.native.llvm.target import host_target
from shardc.native.threads.pool import PARALLEL, Pool

__all__ = ["LoadedHostKernels", "host_kernels", "images_here", "need_device"]

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)


def need_device(executable: Executable, here: GpuTarget) -> None:
    """Raise `EnvironmentProblem`, before anything is loaded, unless the device ``here`` runs ``executable``."""
    program = _program(executable)
    images_here(program, here, executable.name)
    if program.host:
        need_machine(executable, program.host)


def images_here(program: GpuProgram, here: GpuTarget, name: str = "the program") -> tuple[Image, ...]:
    """The code of ``program`` for the device ``here``: cubins for its own generation, else PTX, which newer devices
    take. `EnvironmentProblem` where it was made for another kind of device, or a newer one."""
    kind, arch = program.target.split(" ")
    if kind != str(here).split(" ")[0] or (here.kind == "nvptx" and _capability(arch) > _capability(here.arch)):
        raise EnvironmentProblem(
            f"{name} was compiled for {program.target}, but the device of this machine is {here}",
            fix="compile the program for this device",
        )
    if here.kind != "nvptx" or _capability(arch)[0] == _capability(here.arch)[0]:
        return program.images
    return tuple(
        Image("ptx", text) if text else image for image, text in zip(program.images, _texts(program), strict=True)
    )


def _texts(program: GpuProgram) -> tuple[bytes, ...]:
    return program.ptx or (b"",) * len(program.images)


def _capability(arch: str) -> tuple[int, int]:
    """Major and minor number of ``sm_90``."""
    number = int(arch.removeprefix("sm_"))
    return divmod(number, 10)


@dataclass(frozen=True, slots=True)
class LoadedHostKernels:
    """The kernels of `HostStep` in this process, by symbol: ``function(operands, results, device)``, which takes the
    addresses of two tables of pointers. Their code lives as long as this value."""

    functions: Mapping[str, Callable[[int, int, int], None]]
    keep: tuple[Loaded, Pool | None] | None = None


def host_kernels(executable: Executable, config: Config | None = None) -> LoadedHostKernels:
    """Link the host's kernels of ``executable`` into this process; the thread pool that they may use is the process's.

    ``config`` has the addresses of the user's own functions. `EnvironmentProblem` for code of another kind of CPU,
    `InputError` where an address is missing.
    """
    program = _program(executable)
    if not program.host_objects:
        return LoadedHostKernels({})
    need_machine(executable, program.host)
    needed = undefined_symbols(*program.host_objects)
    addresses = call_addresses(executable, needed, {} if config is None else config.custom_calls)
    pool = step_pool(host_target(), config) if PARALLEL in needed else None
    if pool is not None:
        addresses[PARALLEL] = pool.address()
    symbols = sorted({s.symbol for s in leaf_steps(program.steps) if isinstance(s, HostStep)})
    loaded = load_object(program.host_objects, symbols, addresses)
    return LoadedHostKernels({s: _KERNEL(loaded.address(s)) for s in symbols}, (loaded, pool))


def _program(executable: Executable) -> GpuProgram:
    assert executable.gpu is not None, "compiled for a processor"
    return executable.gpu
