"""Compile for GPUs: a per-device module to an `Executable` whose step the host walks."""

from __future__ import annotations

from dataclasses import replace

from shardc.compiler.clock import Clock
from shardc.compiler.emit.host_kernels import HostKernels
from shardc.compiler.emit.interface import describe_program
from shardc.compiler.emit.profile_steps import EVENTS, make_profile_step
from shardc.compiler.executable import Executable
from shardc.compiler.gpu.compilation import Code, GpuCompilation
from shardc.compiler.gpu.kernel_set import GpuKernels
from shardc.compiler.gpu.steps import GpuSteps
from shardc.compiler.gpu_program import GpuProgram
from shardc.compiler.lower.for_gpu import lower_for_gpu
from shardc.compiler.lower.lowered import Lowered, memory_analysis
from shardc.compiler.measured import program_key
from shardc.compiler.profile import ProfilePlan
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.config import Config
from shardc.hlo.ir.callbacks import need_none
from shardc.hlo.ir.ir import Module
from shardc.hlo.transforms.known_custom_calls import require_computable
from shardc.native.gpu.target import GpuTarget
from shardc.native.llvm.target import Target, host_target
from shardc.native.threads.cores import usable_cores

__all__ = ["build_gpu_executable"]


def build_gpu_executable(
    module: Module,
    config: Config,
    target: GpuTarget,
    machine: Target | None = None,
    *,
    fold: bool = True,
    tuning: Tuning | None = None,
    profile: bool = False,
) -> Executable:
    """Lower and compile ``module`` for GPUs of ``target``, without the cache; what has no GPU code is compiled for the
    processor ``machine``. Without ``fold`` nothing is computed before the program runs; ``tuning`` is by default what
    ``config`` says; with ``profile`` drivers time the steps. Raises `UnsupportedError` for what neither can do."""
    need_none(module, "in a step for GPUs", "compile it for cpu, or return the values and do this outside the function")
    require_computable(module, config.custom_calls)
    emulated = target.kind == "emulated"
    machine = host_target() if emulated or machine is None else machine
    tuning = tuning or replace(DEFAULT, tf32=config.tf32, deterministic=config.deterministic)
    clock = Clock()
    lowered = lower_for_gpu(module, target, config, fold=fold, tuning=tuning)
    clock.mark("lower")
    threads = config.num_threads or usable_cores()
    host = HostKernels(module.name, machine)
    with GpuCompilation(module.name, target, threads) as compilation:
        walked = GpuSteps(lowered, GpuKernels(target, module.num_partitions, compilation, host.symbol, tuning))
        clock.mark("emit")
        codes = compilation.codes()
    objects = host.objects()
    clock.mark("gpu")
    program = GpuProgram(
        target=str(target),
        images=tuple(image for image, _ in codes),
        steps=walked.steps,
        ptx=_texts(codes),
        host_objects=objects,
        host=str(machine) if emulated or objects else "",
        sites=tuple(walked.sites) if profile else (),
    )
    memory = memory_analysis(lowered)
    scratch = walked.arena_bytes - lowered.plan.arena_bytes
    return replace(
        describe_program(module, lowered),
        target=str(target),
        memory={**memory, **{k: memory[k] + scratch for k in ("temporary_bytes", "peak_bytes")}},
        arena_bytes=walked.arena_bytes,
        seconds=clock.seconds,
        features=machine.features if emulated or objects else "",
        profile=_profile_plan(walked, lowered, module) if profile else None,
        gpu=program,
    )


def _profile_plan(walked: GpuSteps, lowered: Lowered, module: Module) -> ProfilePlan:
    """The sites; what is recorded lies with the driver, not in the arena."""
    sites = tuple(make_profile_step(step, lowered.plan, kernel) for step, kernel in walked.timed)
    return ProfilePlan(sites, 0, EVENTS, program_key(module))


def _texts(codes: list[Code]) -> tuple[bytes, ...]:
    """The PTX behind cubins, by image; empty where there is none at all."""
    texts = tuple(text for _, text in codes)
    return texts if any(texts) else ()
