"""Compile: a per-device module to an `Executable`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from shardc.compiler.cache.cache import bypasses_cache, code_settings, fetch_or_build, find_cached, link, module_key
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.emit.templates import find_template
from shardc.compiler.executable import Executable
from shardc.compiler.targets import find_target, is_gpu
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.progress import stage
from shardc.hlo.transforms.known_custom_calls import require_computable
from shardc.native.llvm.target import Target, host_target

__all__ = ["compile_module"]


@stage("compile")
def compile_module(
    module: Module,
    config: Config | None = None,
    target: str = "cpu",
    *,
    profile: bool = False,
    source: str = "",
    machine: Target | None = None,
    compile_remotely: Callable[[], Executable | None] | None = None,
) -> Executable:
    """Lower and compile a per-device module (or one for a single device) for a CPU, by default this machine's, or for
    GPUs: ``target`` as `shardc.compiler.targets.find_target` has it; what they cannot do is then for the CPU.

    The answer comes from the cache on disk (``config.cache_dir``) when the same program was compiled before, and is
    then linked from the key ``source``; with ``config.check`` or a dump directory it is always made anew. With
    ``profile`` the step records the time that each of its kernels takes (`Executable.profile`). Raises
    `UnsupportedError` for what cannot be compiled, and for tuning on GPUs. What is not in the cache is asked of
    ``compile_remotely`` before it is made.
    """
    config = config or Config()
    machine = machine or host_target()
    gpu = find_target(target) if is_gpu(target) else None
    if gpu is not None and config.tune:
        raise UnsupportedError(
            f"only CPU targets can be tuned, but the target is {target!r}", fix="omit tune= and SHARDC_TUNE"
        )

    def build() -> Executable:
        if gpu is None:
            return _build(module, config, machine, profile)
        from shardc.compiler.emit.gpu_executable import build_gpu_executable  # with all that emits kernels for GPUs

        return build_gpu_executable(module, config, gpu, machine, profile=profile)

    if bypasses_cache(config):
        return build()
    require_computable(module, config.custom_calls)  # a cached object may call what this process does not have
    if gpu is None and not profile and not config.tune and compile_remotely is None:
        shared = _with_shared_code(module, config, machine, source)
        if shared is not None:
            return shared
    key = module_key(module, machine, *code_settings(config), profile, *(() if gpu is None else (gpu,)))
    # Before the entry is locked: the service may be on this computer, and have the same cache.
    given = compile_remotely() if compile_remotely is not None and find_cached(key, config) is None else None
    return fetch_or_build(key, config, build if given is None else lambda: given, source)


def _with_shared_code(module: Module, config: Config, machine: Target, source: str) -> Executable | None:
    """The executable of a program that has a template, whose code the cache has for all that differ in sizes alone."""
    use = find_template(module)
    if use is None:
        return None
    key = module_key(use.template, machine, *code_settings(config), "template")
    template = fetch_or_build(key, config, lambda: build_executable(use.template, config, machine, counted=True))
    executable = use.executable(template)
    if executable is not None and source:
        link(source, key, executable, config)
    return executable


def _build(module: Module, config: Config, machine: Target, profile: bool) -> Executable:
    """`build_executable`, tuned if that is asked for and this is the machine."""
    if not config.tune or machine != host_target():
        return build_executable(module, config, machine, profile=profile)
    from shardc.compiler.tune.tune import choose  # with what measures kernels

    start = time.perf_counter()
    choice = choose(module, config, machine)
    seconds = {"tune": time.perf_counter() - start}
    emit = partial(choice.emit, machine)
    made = build_executable(module, config, machine, kernels=emit, tuning=choice.program, profile=profile)
    return replace(made, tuning=choice.as_dict(), seconds={**seconds, **made.seconds})
