"""Compile for a CPU: a per-device module to an `Executable` whose step is one native function."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from shardc.compiler.clock import Clock
from shardc.compiler.emit.interface import describe_program
from shardc.compiler.emit.kernels import EmitKernel, Parts
from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.emit.step import SYMBOL, emit_step
from shardc.compiler.emit.templates import fits_any_count
from shardc.compiler.executable import Executable
from shardc.compiler.lower.pipeline import PASSES, WITHOUT_FOLDING, apply_tuning, lower
from shardc.compiler.measured import program_key
from shardc.compiler.routines.known import may_be_table
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.transforms.known_custom_calls import require_computable
from shardc.native.llvm.jit import Compilation, new_module
from shardc.native.llvm.target import Target
from shardc.native.routines.records import ROUTINE_STEP
from shardc.native.threads.cores import usable_cores

if TYPE_CHECKING:
    from shardc.compiler.emit.probe import Probe
    from shardc.compiler.lower.lowered import Lowered

__all__ = ["build_executable"]


def build_executable(
    module: Module,
    config: Config,
    machine: Target,
    *,
    kernels: EmitKernel | None = None,
    fold: bool = True,
    symbol: str = SYMBOL,
    profile: bool = False,
    tuning: Tuning = DEFAULT,
    whole: bool = False,
    counted: bool = False,
) -> Executable:
    """`compile_module` without the cache. ``kernels`` makes the native kernels in another way; without ``fold``
    nothing is computed before the program runs. ``symbol`` names the entry point; ``profile`` as there; ``tuning``
    says how the program is cut into kernels. ``whole``: in one object, however large. ``counted``: as `emit_step` says,
    for a program whose arrays have one dimension and one size, or are scalars; without code where that does not do for
    any number of elements. A small program that only moves, multiplies and sorts is a table, where nothing asks for
    kernels of its own."""
    require_computable(module, config.custom_calls)
    clock = Clock()
    lowered = lower(module, config, passes=apply_tuning(PASSES if fold else WITHOUT_FOLDING, tuning))
    clock.mark("lower")
    if (
        kernels is None
        and tuning == DEFAULT
        and symbol == SYMBOL
        and not (profile or counted)
        and may_be_table(lowered)
    ):
        table = _table(module, lowered, machine, config, clock)
        if table is not None:
            return table
    if counted and not fits_any_count(lowered):
        return describe_program(module, lowered)
    probe = _probe(lowered) if profile else None
    with Compilation(machine, config.num_threads or usable_cores()) as compilation:
        first = new_module(module.name, machine)
        parts = Parts(first, lambda: new_module(module.name, machine), compilation.add)
        kernels = kernels or partial(emit_kernel, target=machine, counted=counted)
        emit_step(first, lowered, kernels, symbol, probe, None if whole else parts, counted=counted)
        parts.close()
        clock.mark("emit")
        objects = compilation.objects(first)
    recorded = None if probe is None else replace(probe.plan(), program=program_key(module))
    clock.mark("native")
    return replace(
        describe_program(module, lowered),
        target=str(machine),
        objects=objects,
        symbol=symbol,
        arena_bytes=lowered.plan.arena_bytes if recorded is None else recorded.offset + recorded.nbytes,
        seconds=clock.seconds,
        features=machine.features,
        profile=recorded,
    )


def _table(module: Module, lowered: Lowered, machine: Target, config: Config, clock: Clock) -> Executable | None:
    """The program as a table of calls of routines, if it is small."""
    from shardc.compiler.routines.objects import routine_objects
    from shardc.compiler.routines.table import routine_table  # most programs compute something

    table = routine_table(lowered, machine)
    if table is None:
        return None
    made = describe_program(module, lowered)
    objects = routine_objects(machine, config)
    clock.mark("emit")
    return replace(
        made,
        target=str(machine),
        objects=objects,
        symbol=ROUTINE_STEP,
        arena_bytes=table.arena_bytes,
        constants=table.constants,
        seconds=clock.seconds,
        features=machine.features,
    )


def _probe(lowered: Lowered) -> Probe:
    from shardc.compiler.emit.probe import Probe  # with the cost model, of which a profile tells

    return Probe(lowered)
