"""Programs compiled ahead of time: from a partitioned program to C files that run without Python."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.hlo.errors import InputError

if TYPE_CHECKING:
    from shardc.compiler.ahead.program import AheadProgram
    from shardc.launcher.stages import Partitioned
    from shardc.native.target import Target

__all__ = ["compile_ahead", "write_ahead"]


def compile_ahead(partitioned: Partitioned, *, name: str = "", cpu: str = "", system: str = "") -> AheadProgram:
    """The per-device program compiled for ``cpu`` (a name of `shardc.native.target.CPUS`; default: this machine).

    ``name`` is what C calls it (default: the program's own), ``system`` is ``linux`` or ``macos``. Raises `InputError`
    for other names. Example: ``compile_ahead(program.propagate().partition(), cpu="x86-64-v3")``.
    """
    from shardc.compiler.ahead.program import AheadProgram, identifier
    from shardc.compiler.compile import build_executable
    from shardc.compiler.kernels import emit_kernel

    target = _target(cpu, system)
    chosen = identifier(name or partitioned.module.name)
    if name and chosen != name:
        raise InputError(f"{name!r} is not a name in C", where="the program's name", fix=f"{chosen!r} is one")
    config = partitioned.program.config
    kernels = partial(emit_kernel, target=target)
    executable = build_executable(
        partitioned.compiled_module, config, target, kernels=kernels, symbol=f"{chosen}_step", whole=True
    )
    return AheadProgram(executable, target, chosen)


def _target(cpu: str, system: str) -> Target:
    from shardc.native.target import CPUS, SYSTEMS, host_target, named_target

    if system and system not in SYSTEMS:
        raise InputError(f"there is no target system {system!r}", fix=f"one of {', '.join(SYSTEMS)}")
    if not cpu or cpu == "native":
        if system:
            raise InputError(f"a target system ({system}) without a CPU", fix="name both")
        return host_target()
    if cpu not in CPUS:
        raise InputError(f"there is no target CPU {cpu!r}", fix=f"native, or one of {', '.join(CPUS)}")
    return named_target(cpu, system)


def write_ahead(program: AheadProgram, folder: str | Path) -> list[Path]:
    """Write all files of ``program`` into ``folder``: object, constants, header, C source, manifest, example, Makefile.

    Raises `InputError` where that cannot be.
    """
    from shardc import __version__
    from shardc.compiler.ahead.bundle import bundle, write_bundle

    return write_bundle(bundle(program, __version__), Path(folder))
