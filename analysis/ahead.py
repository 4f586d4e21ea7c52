"""Programs compiled ahead of time: from a partitioned program to C files that run without Python, or code for GPUs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.hlo.errors import InputError

if TYPE_CHECKING:
    from shardc.compiler.ahead.program import AheadProgram
    from shardc.compiler.executable import Executable
    from shardc.hlo.config import Config
    from shardc.native.llvm.target import Target
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["compile_ahead", "compile_ahead_for", "write_ahead", "write_gpu_ahead"]


def compile_ahead(partitioned: PartitionedProgram, *, name: str = "", cpu: str = "", system: str = "") -> AheadProgram:
    """The per-device program compiled for ``cpu`` (a name of `shardc.native.llvm.target.CPUS`; default: this machine).

    ``name`` is what C calls it (default: the program's own), ``system`` is ``linux`` or ``macos``. Raises `InputError`
    for other names, and for tuning (`Config.tune`) when it is not for this machine.
    Example: ``compile_ahead(program.propagate().partition(), cpu="x86-64-v3")``.
    """
    return compile_ahead_for(partitioned, ahead_target(cpu, system), name)


def compile_ahead_for(partitioned: PartitionedProgram, target: Target, name: str = "") -> AheadProgram:
    """`compile_ahead` for any ``target``."""
    from shardc.compiler.ahead.program import AheadProgram, identifier
    from shardc.compiler.emit.cpu_executable import build_executable
    from shardc.compiler.emit.native_kernel import emit_kernel
    from shardc.compiler.tune.tune import choose
    from shardc.compiler.tuning import DEFAULT
    from shardc.hlo.ir.callbacks import need_none
    from shardc.native.llvm.target import host_target

    chosen = identifier(name or partitioned.module.name)
    if name and chosen != name:
        raise InputError(f"{name!r} is not a valid name in C", where="the program's name", fix=f"use {chosen!r}")
    module = partitioned.compiled_module
    need_none(module, "where there is no Python", "return the values and do this outside the function")
    config = _with_linked_functions(partitioned)
    kernels, tuning, words = partial(emit_kernel, target=target), DEFAULT, {}
    if config.tune:
        if target != host_target():
            raise InputError(
                f"{target} is not this machine, so it cannot be tuned here", fix="tune on a machine of that kind"
            )
        choice = choose(module, config, target)
        kernels, tuning, words = partial(choice.emit, target), choice.program, choice.as_dict()
    executable = build_executable(
        module, config, target, kernels=kernels, symbol=f"{chosen}_step", tuning=tuning, whole=True
    )
    return AheadProgram(replace(executable, tuning=words), target, chosen)


def _with_linked_functions(partitioned: PartitionedProgram) -> Config:
    """The configuration in which custom calls that shardc does not know are C functions that the linker finds."""
    from shardc.hlo.ir.custom_calls import CustomCall
    from shardc.hlo.transforms.known_custom_calls import is_known

    config = partitioned.program.config
    calls = [i for i in partitioned.module.instructions() if i.opcode == "custom-call"]
    targets = sorted({i.attrs["custom_call_target"] for i in calls})
    own = config.custom_calls
    missing = [t for t in targets if not (own[t].address if t in own else is_known(t))]
    # Compiled code names the function: which address it has matters to nobody yet.
    # The runtime in C does each collective where it stands.
    config = replace(config, overlap="never")
    return replace(config, custom_calls={**own, **{t: CustomCall(address=1) for t in missing}})


def ahead_target(cpu: str, system: str) -> Target:
    """The processor that `compile_ahead` compiles for; `InputError` for unknown names."""
    from shardc.native.llvm.target import CPUS, SYSTEMS, host_target, named_target

    if system and system not in SYSTEMS:
        raise InputError(f"unknown target system {system!r}", fix=f"use one of {', '.join(SYSTEMS)}")
    if not cpu or cpu == "native":
        if system:
            raise InputError(f"the target system {system} needs a CPU", fix="name both")
        return host_target()
    if cpu not in CPUS:
        raise InputError(f"unknown target CPU {cpu!r}", fix=f"use native, or one of {', '.join(CPUS)}")
    return named_target(cpu, system)


def write_ahead(program: AheadProgram, folder: str | Path) -> list[Path]:
    """Write all files of ``program`` into ``folder``: object, constants, header, C source, manifest, example, Makefile.

    Raises `InputError` where that cannot be.
    """
    from shardc.compiler.ahead.bundle import bundle, write_bundle
    from shardc.hlo.version import VERSION

    return write_bundle(bundle(program, VERSION), Path(folder))


def write_gpu_ahead(executable: Executable, folder: str | Path, *, name: str = "") -> list[Path]:
    """Write what a program compiled for GPUs is made of: PTX, cubins and constants, ``NAME.json``, which says what is
    launched, and ``NAME.shardc`` for `shardc.load_executable`. ``name`` is by default the program's own.

    Raises `InputError` for programs for processors, and where that cannot be written.
    Example: ``write_gpu_ahead(partitioned.compile("cuda:sm_90").executable, "step")``.
    """
    from shardc.compiler.ahead.bundle import write_bundle
    from shardc.compiler.ahead.gpu_bundle import gpu_bundle
    from shardc.compiler.ahead.program import identifier
    from shardc.hlo.version import VERSION

    if executable.gpu is None:
        raise InputError(f"{executable.name} is compiled for {executable.target}, not for C", fix="use compile_ahead")
    return write_bundle(gpu_bundle(executable, identifier(name or executable.name), VERSION), Path(folder))
