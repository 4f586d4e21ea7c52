"""Compile: a per-device module to an `Executable`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from shardc.collectives.call import CollectiveCall, CollectiveOperand
from shardc.collectives.schedule import check_schedule
from shardc.compiler.cache import bypasses_cache, cached, code_settings, module_key
from shardc.compiler.emit.kernels import EmitKernel, Parts
from shardc.compiler.emit.probe import Probe
from shardc.compiler.emit.step import SYMBOL, emit_step
from shardc.compiler.executable import ArraySpec, CheckSite, Executable
from shardc.compiler.kernels import emit_kernel
from shardc.compiler.load import LoadedStep, load_step, run_single
from shardc.compiler.lower.canonicalise_collectives import reduction_of
from shardc.compiler.lower.linearise import array_leaves
from shardc.compiler.lower.lowered import Collective, Lowered, memory_analysis
from shardc.compiler.lower.pipeline import PASSES, WITHOUT_FOLDING, lower, tuned_passes
from shardc.compiler.measured import program_key
from shardc.compiler.schedule_of import schedule_of
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.config import Config
from shardc.hlo.custom_calls import need_computable
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Instruction, Module
from shardc.hlo.opset import COLLECTIVES
from shardc.hlo.sharding import Sharding
from shardc.hlo.types import Shape
from shardc.native.jit import Compilation, new_module
from shardc.native.target import Target, host_target

__all__ = ["LoadedStep", "build_executable", "compile_module", "load_step", "run_single"]


def compile_module(
    module: Module,
    config: Config | None = None,
    target: str = "cpu",
    *,
    profile: bool = False,
    source: str = "",
    machine: Target | None = None,
) -> Executable:
    """Lower and compile a per-device module (or one for a single device) for a CPU, by default this machine's.

    The answer comes from the cache on disk (``config.cache_dir``) when the same program was compiled before, and is
    then linked from the key ``source``; with ``config.check`` or a dump directory it is always made anew. With
    ``profile`` the step records the time that each of its kernels takes (`Executable.profile`). Raises
    `UnsupportedError` for what cannot be compiled.
    """
    config = config or Config()
    if target != "cpu":
        raise UnsupportedError(f"no target {target!r}", fix="compile for 'cpu'")
    machine = machine or host_target()
    if bypasses_cache(config):
        return _build(module, config, machine, profile)
    need_computable(module, config.custom_calls)  # a cached object may call what this process does not have
    key = module_key(module, machine, *code_settings(config), profile)
    return cached(key, config, lambda: _build(module, config, machine, profile), source)


def _build(module: Module, config: Config, machine: Target, profile: bool) -> Executable:
    """`build_executable`, tuned if that is asked for and this is the machine."""
    if not config.tune or machine != host_target():
        return build_executable(module, config, machine, profile=profile)
    from shardc.compiler.tune import choose

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
    clock = _Clock()
    lowered = lower(module, config, passes=tuned_passes(PASSES if fold else WITHOUT_FOLDING, tuning))
    clock.mark("lower")
    probe = Probe(lowered) if profile else None
    with Compilation(machine, config.num_threads or _cores()) as compilation:
        first = new_module(module.name, machine)
        parts = Parts(first, lambda: new_module(module.name, machine), compilation.add)
        emit_step(
            first, lowered, kernels or partial(emit_kernel, target=machine), symbol, probe, None if whole else parts
        )
        parts.close()
        compilation.add(first)
        clock.mark("emit")
        objects = compilation.objects()
    collectives = tuple(_call(c, lowered) for c in lowered.collectives)
    schedule = schedule_of(lowered.module, lowered.steps)
    check_schedule(schedule, collectives, _num_devices(module))
    recorded = None if probe is None else replace(probe.plan(), program=program_key(module))
    clock.mark("native")
    return Executable(
        name=module.name,
        target=str(machine),
        objects=objects,
        symbol=symbol,
        num_devices=_num_devices(module),
        arguments=_argument_specs(module),
        results=_result_specs(module),
        arena_bytes=lowered.plan.arena_bytes if recorded is None else recorded.offset + recorded.nbytes,
        constants=lowered.constants.data,
        collectives=collectives,
        schedule=schedule,
        donated=_donated(module),
        seconds=clock.seconds,
        aliases=lowered.plan.aliases,
        features=machine.features,
        memory=memory_analysis(lowered),
        checks=tuple(_check_site(c.instruction) for c in lowered.checks),
        profile=recorded,
        once=lowered.once.groups,
        shared=lowered.once.in_place,
        result_classes=lowered.once.results,
        sections=lowered.plan.sections,
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Clock:
    """Seconds between marks."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now


def _check_site(i: Instruction) -> CheckSite:
    return CheckSite(i.attrs["custom_call_target"], i.name, i.source)


def _num_devices(module: Module) -> int:
    """Devices that run the module: one for a global program without collectives."""
    several = module.partitioned or any(i.opcode in COLLECTIVES for i in module.instructions())
    return module.num_partitions * module.replica_count if several else 1


def _donated(module: Module) -> tuple[int, ...]:
    return tuple(sorted({a.parameter for a in module.aliases} | set(module.donors)))


def _argument_specs(module: Module) -> tuple[ArraySpec, ...]:
    names = module.arg_names or ("",) * len(module.parameters)
    local = [(n, s) for n, p in zip(names, module.parameters, strict=True) for s in array_leaves(p.shape.plain)]
    shardings = [s for p in module.parameters for s in _shardings(p.sharding, len(array_leaves(p.shape)))]
    return _specs(module, "global_parameters", local, shardings)


def _result_specs(module: Module) -> tuple[ArraySpec, ...]:
    root = module.entry.root
    shapes = array_leaves(root.shape.plain)
    names = module.result_names if len(module.result_names) == len(shapes) else ("",) * len(shapes)
    return _specs(
        module, "global_results", list(zip(names, shapes, strict=True)), _shardings(root.sharding, len(shapes))
    )


def _shardings(sharding: Any, count: int) -> list[Sharding | None]:
    items = sharding if isinstance(sharding, tuple) else (sharding,)
    if len(items) != count:
        return [None] * count
    return [s if isinstance(s, Sharding) else None for s in items]


def _specs(
    module: Module, key: str, local: Sequence[tuple[str, Shape]], shardings: Sequence[Sharding | None]
) -> tuple[ArraySpec, ...]:
    """One spec per flat array; a module for one device has neither other global shapes nor shardings."""
    whole = [leaf for s in module.attrs.get(key, ()) for leaf in array_leaves(s.plain)]
    if not module.partitioned or len(whole) != len(local):
        return tuple(ArraySpec(name, shape, shape, None) for name, shape in local)
    return tuple(ArraySpec(name, g, shape, s) for (name, shape), g, s in zip(local, whole, shardings, strict=True))


def _call(step: Collective, lowered: Lowered) -> CollectiveCall:
    i = step.instruction
    groups = i.attrs["source_target_pairs"] if i.opcode == "collective-permute" else i.attrs["replica_groups"]
    operands = tuple(
        CollectiveOperand(
            lowered.plan.ref(o), lowered.plan.ref(r), o.shape.dtype, o.shape.size, lowered.once.wanted.get(r, -1)
        )
        for o, r in zip(step.operands, step.results, strict=True)
    )
    reduction = reduction_of(i) if "to_apply" in i.attrs else ""
    reason = i.origin.reason if i.origin else ""
    return CollectiveCall(
        step.index, i.opcode, reduction, groups, operands, i.name, i.source, reason, asynchronous=step.asynchronous
    )
