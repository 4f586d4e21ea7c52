"""Compile: a per-device module to an `Executable`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from shardc.compiler.cache.cache import bypasses_cache, cached, code_settings, known, module_key
from shardc.compiler.clock import Clock, cores
from shardc.compiler.cpu import emit_kernel
from shardc.compiler.emit.kernels import EmitKernel, Parts
from shardc.compiler.emit.probe import Probe
from shardc.compiler.emit.step import SYMBOL, emit_step
from shardc.compiler.executable import Executable
from shardc.compiler.gpu.names import find_target, is_gpu
from shardc.compiler.interface import described
from shardc.compiler.load import LoadedStep, load_step, run_single
from shardc.compiler.lower.pipeline import PASSES, WITHOUT_FOLDING, lower, tuned_passes
from shardc.compiler.tune.measured import program_key
from shardc.compiler.tune.tuning import DEFAULT, Tuning
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.custom_calls import need_computable
from shardc.hlo.ir.ir import Module
from shardc.hlo.progress import stage
from shardc.native.llvm.jit import Compilation, new_module
from shardc.native.llvm.target import Target, host_target

__all__ = ["LoadedStep", "build_executable", "compile_module", "load_step", "run_single"]


@stage("compile")
def compile_module(
    module: Module,
    config: Config | None = None,
    target: str = "cpu",
    *,
    profile: bool = False,
    source: str = "",
    machine: Target | None = None,
    elsewhere: Callable[[], Executable | None] | None = None,
) -> Executable:
    """Lower and compile a per-device module (or one for a single device) for a CPU, by default this machine's, or for
    GPUs: ``target`` as `shardc.compiler.gpu.names.find_target` has it; what they cannot do is then for the CPU.

    The answer comes from the cache on disk (``config.cache_dir``) when the same program was compiled before, and is
    then linked from the key ``source``; with ``config.check`` or a dump directory it is always made anew. With
    ``profile`` the step records the time that each of its kernels takes (`Executable.profile`). Raises
    `UnsupportedError` for what cannot be compiled, and for tuning on GPUs. What is not in the cache is asked for
    ``elsewhere`` before it is made.
    """
    config = config or Config()
    machine = machine or host_target()
    gpu = find_target(target) if is_gpu(target) else None
    if gpu is not None and config.tune:
        raise UnsupportedError(
            f"tuning is for processors, and the target is {target!r}", fix="leave it out (tune=, SHARDC_TUNE)"
        )

    def build() -> Executable:
        if gpu is None:
            return _build(module, config, machine, profile)
        from shardc.compiler.gpu.compile import build_gpu_executable  # with all that emits kernels for GPUs

        return build_gpu_executable(module, config, gpu, machine, profile=profile)

    if bypasses_cache(config):
        return build()
    need_computable(module, config.custom_calls)  # a cached object may call what this process does not have
    key = module_key(module, machine, *code_settings(config), profile, *(() if gpu is None else (gpu,)))
    # Before the entry is locked: the service may be on this computer, and have the same cache.
    given = elsewhere() if elsewhere is not None and known(key, config) is None else None
    return cached(key, config, build if given is None else lambda: given, source)


def _build(module: Module, config: Config, machine: Target, profile: bool) -> Executable:
    """`build_executable`, tuned if that is asked for and this is the machine."""
    if not config.tune or machine != host_target():
        return build_executable(module, config, machine, profile=profile)
    from shardc.compiler.tune.tune import choose

    start = time.perf_counter()
    choice = choose(module, config, machine)
    seconds = {"tune": time.perf_counter() - start}
    emit = partial(choice.emit, machine)
    made = build_executable(module, config, machine, kernels=emit, tuning=choice.program, profile=profile)
    return replace(made, tuning=choice.as_dict(), seconds={**seconds, **made.seconds})


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
) -> Executable:
    """`compile_module` without the cache. ``kernels`` makes the native kernels in another way; without ``fold``
    nothing is computed before the program runs. ``symbol`` names the entry point; ``profile`` as there; ``tuning``
    says how the program is cut into kernels. ``whole``: in one object, however large."""
    need_computable(module, config.custom_calls)
    clock = Clock()
    lowered = lower(module, config, passes=tuned_passes(PASSES if fold else WITHOUT_FOLDING, tuning))
    clock.mark("lower")
    probe = Probe(lowered) if profile else None
    with Compilation(machine, config.num_threads or cores()) as compilation:
        first = new_module(module.name, machine)
        parts = Parts(first, lambda: new_module(module.name, machine), compilation.add)
        emit_step(
            first, lowered, kernels or partial(emit_kernel, target=machine), symbol, probe, None if whole else parts
        )
        parts.close()
        compilation.add(first)
        clock.mark("emit")
        objects = compilation.objects()
    recorded = None if probe is None else replace(probe.plan(), program=program_key(module))
    clock.mark("native")
    return described(
        module,
        lowered,
        target=str(machine),
        objects=objects,
        symbol=symbol,
        arena_bytes=lowered.plan.arena_bytes if recorded is None else recorded.offset + recorded.nbytes,
        seconds=clock.seconds,
        features=machine.features,
        profile=recorded,
    )
