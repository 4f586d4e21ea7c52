"""Lowering for GPUs that we emit code for.

The decisions are those for processors (what fuses, what is computed in place, where buffers lie), less the passes that
cut work for caches and cores: kernels on a GPU cut it by blocks of threads themselves. Collectives are scheduled beside
the kernels as on a described machine with such GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from shardc.compiler.lower.described import device_passes, overlap_on
from shardc.compiler.lower.expand.expand_ops import ExpandOps
from shardc.compiler.lower.expand.expand_vector_products import ExpandVectorProducts
from shardc.compiler.lower.expand.resolve_groups import ResolveGroups
from shardc.compiler.lower.fuse.fuse_products import FuseProducts
from shardc.compiler.lower.lowered import Lowered
from shardc.compiler.lower.pipeline import apply_tuning, lower_with
from shardc.compiler.lower.schedule.overlap import Overlap
from shardc.compiler.lower.simplify.swap_products import SwapProducts
from shardc.compiler.measured import program_key, read_measured
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.costs.machines.machine import Machine, load_machine
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.passes import Pass
from shardc.hlo.simplify.fold_constants import FoldConstants
from shardc.native.gpu.target import GpuTarget

__all__ = ["ARRAY_ALIGNMENT", "gpu_passes", "lower_for_gpu", "machine_of"]

#: Kernels are given arrays at multiples of this, in bytes: what a thread loads at once.
ARRAY_ALIGNMENT = 16

#: The described machine whose links and memory collectives are scheduled for, by architecture.
_MACHINES = MappingProxyType({"sm_80": "a100-dgx", "sm_86": "a100-dgx"})
_DEFAULT_MACHINE = "h100-dgx"


def lower_for_gpu(
    module: Module, target: GpuTarget, config: Config | None = None, *, fold: bool = True, tuning: Tuning = DEFAULT
) -> Lowered:
    """Fuse, order and lay out a per-device module for GPUs of ``target``; without ``fold`` nothing is computed before
    the program runs. Raises `UnsupportedError` as `lower` does."""
    config = config or Config()
    passes = gpu_passes(module, target, config)
    if not fold:
        passes = tuple(p for p in passes if not isinstance(p, FoldConstants))
    return lower_with(module, apply_tuning(passes, tuning), config, alignment=ARRAY_ALIGNMENT, shared=False)


def gpu_passes(module: Module, target: GpuTarget, config: Config) -> tuple[Pass, ...]:
    """What is done to ``module`` for ``target``, in order."""
    out: list[Pass] = []
    for p in device_passes(_overlap(module, target, config)):
        if isinstance(p, ExpandOps):
            out.append(replace(p, batch_norm=True))
        elif isinstance(p, ResolveGroups):
            out.append(replace(p, ragged=False))
        elif isinstance(p, FuseProducts):
            out += [SwapProducts(), ExpandVectorProducts(), replace(p, leaders=frozenset({"dot", "convolution"}))]
        else:
            out.append(p)
    return tuple(out)


def machine_of(target: GpuTarget, config: Config) -> Machine:
    """The described machine that ``config`` names, or one with GPUs of ``target``."""
    return load_machine(config.machine or _MACHINES.get(target.arch, _DEFAULT_MACHINE))


def _overlap(module: Module, target: GpuTarget, config: Config) -> Overlap | None:
    """What goes on beside computing; None for a program without collectives."""
    if not any(i.opcode in COLLECTIVES for i in module.instructions()):
        return None
    found = overlap_on(machine_of(target, config), config)
    if found is None or config.profile is None:
        return found
    measured = read_measured(config.profile, program_key(module))
    return replace(found, measured=MappingProxyType(dict(measured)))
