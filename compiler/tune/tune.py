"""Tune: try other choices on this machine, within a time limit, and keep the best.

First other ways to cut the program into kernels, as whole steps; then the kernels by themselves, the heaviest first,
one field of `Tuning` after the other. A choice counts only when it is clearly faster, and needs no more memory; and all
choices together only when the whole step is faster with them, for kernels alone find their operands in the caches. What
was found lies in the cache folder, by program and by kernel, CPU, threads and version: the same choices, and so the
same bits, until it is removed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from llvmlite import ir

from shardc.compiler.cache.cache import kernel_digest, module_key
from shardc.compiler.describe import describe_instruction
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.executable import Executable
from shardc.compiler.kernel_key import kernel_key
from shardc.compiler.load.step import step_pool
from shardc.compiler.lower.lowered import KernelStep, Lowered, leaf_steps
from shardc.compiler.lower.pipeline import PASSES, apply_tuning, lower
from shardc.compiler.lower.schedule.step_traffic import step_traffic
from shardc.compiler.tune.trial import KernelTrial, StepTrial, compare
from shardc.compiler.tuning import DEFAULT, Tuning, kernel_candidates, program_candidates
from shardc.costs.kernels.trips import trip_count
from shardc.hlo.config import Config
from shardc.hlo.files import write_atomically
from shardc.hlo.ir.ir import Instruction, Module, called_computations
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.native.llvm.target import Target
from shardc.native.threads.cores import usable_cores
from shardc.native.threads.pool import Pool

__all__ = ["TuningChoice", "Workplace", "choose", "tune"]

log = logging.getLogger("shardc")

#: A choice must take at most this part of the time of what there is.
_CLEARLY = 0.97
#: What a core moves and computes per second, roughly: to tell heavy kernels from light ones.
_BYTES, _FLOPS = 10e9, 50e9


@dataclass(frozen=True, slots=True)
class TuningChoice:
    """What was chosen: for the program, and by `kernel_key` for kernels that gain from something else."""

    program: Tuning
    kernels: Mapping[str, Tuning]
    descriptions: Mapping[str, str]

    def emit(self, target: Target, module: ir.Module, instruction: Instruction, name: str) -> ir.Function:
        """`emit_kernel` with the kernel's choice."""
        return emit_kernel(module, instruction, name, target, self.kernels.get(kernel_key(instruction), self.program))

    def as_dict(self) -> dict[str, Any]:
        """What differs from the defaults, as plain data: ``program`` and ``kernels`` (by what they hold)."""
        named = {self.descriptions.get(k, k): t.changes() for k, t in self.kernels.items() if t.changes()}
        return {"program": self.program.changes(), "kernels": named}


@dataclass(frozen=True)
class Workplace:
    """Where tuning happens: for which machine, under which settings, with which threads.

    ``build`` compiles the module that is tuned with a choice; ``pool`` gives the threads.
    """

    config: Config
    machine: Target
    build: Callable[[TuningChoice], Executable]
    pool: Callable[[], Pool]

    @cached_property
    def threads(self) -> int:
        """Threads that kernels of one device may use."""
        return self.config.num_threads or usable_cores()

    @cached_property
    def helpers(self) -> Pool:
        pool = self.pool()
        pool.configure(self.threads - 1)
        return pool


def choose(module: Module, config: Config, machine: Target) -> TuningChoice:
    """`tune` with what compiles and runs the module on this machine."""

    def build(choice: TuningChoice) -> Executable:
        emit = partial(choice.emit, machine)
        return build_executable(module, config, machine, kernels=emit, tuning=choice.program)

    return tune(module, Workplace(config, machine, build, partial(step_pool, machine, config)))


def tune(module: Module, place: Workplace) -> TuningChoice:
    """The choice for ``module``: the kept one, or the best that `Config.tune` seconds show."""
    key = module_key(module, place.machine, "tuning", place.threads, place.config.tune)
    kept = _read(key, place)
    if kept is not None:
        return kept
    deadline = time.monotonic() + place.config.tune
    steps = _StepTrials(place, deadline) if _may_run(module) else None
    program = DEFAULT if steps is None else steps.best_program(deadline - place.config.tune / 2)
    lowered = lower(module, place.config, passes=apply_tuning(PASSES, program))
    end = deadline - (0.0 if steps is None else 3 * steps.each)
    kernels, descriptions = _best_kernels(lowered, program, place, end)
    choice = TuningChoice(program, kernels, descriptions)
    if steps is not None and kernels and not steps.gains(choice):
        choice = TuningChoice(program, {}, {})
    _write(key, choice, place)
    return choice


# -- the program ---------------------------------------------------------------------------------------------------


class _StepTrials:
    """Whole steps of the program that is tuned, on random data."""

    def __init__(self, place: Workplace, deadline: float) -> None:
        self._place = place
        self._deadline = deadline
        start = time.monotonic()
        self._plain = place.build(TuningChoice(DEFAULT, {}, {}))
        #: Seconds that it takes to build one.
        self.each = time.monotonic() - start
        self._trial = StepTrial(self._plain, place.helpers)

    def best_program(self, deadline: float) -> Tuning:
        """The best way to cut the program into kernels, of those that the time allows to build and run."""
        best, code = DEFAULT, {self._plain.objects}
        for candidate in program_candidates():
            if time.monotonic() + 2 * self.each > deadline:
                break
            other = self._place.build(TuningChoice(candidate, {}, {}))
            if other.objects in code or other.memory["peak_bytes"] > self._plain.memory["peak_bytes"]:
                continue
            code.add(other.objects)
            rival = StepTrial(other, self._place.helpers)
            before, after = compare([self._trial.run, rival.run], deadline)
            log.debug("the program with %s: %s s instead of %s", candidate.changes(), after, before)
            if after < _CLEARLY * before:
                best, self._trial = candidate, rival
        return best

    def gains(self, choice: TuningChoice) -> bool:
        """Whether the whole step is faster with the choice's kernels than with those that the program has so far."""
        rival = StepTrial(self._place.build(choice), self._place.helpers)
        before, after = compare([self._trial.run, rival.run], self._deadline)
        log.debug("the step with %s kernels tuned: %s s instead of %s", len(choice.kernels), after, before)
        return after < before


def _may_run(module: Module) -> bool:
    """Whether the program may run by itself on random data. It may not with other devices, users' code, or loops
    without a bound."""
    loops = [i for i in module.instructions() if i.opcode == "while"]
    foreign = any(i.opcode in COLLECTIVES or i.opcode == "custom-call" for i in module.instructions())
    return not foreign and not module.partitioned and all(trip_count(i) is not None for i in loops)


# -- kernels -------------------------------------------------------------------------------------------------------


def _best_kernels(
    lowered: Lowered, program: Tuning, place: Workplace, deadline: float
) -> tuple[dict[str, Tuning], dict[str, str]]:
    """Choices by kernel, and what these kernels hold."""
    weights: dict[str, float] = {}
    first: dict[str, KernelStep] = {}
    for step in leaf_steps(lowered.steps):
        if isinstance(step, KernelStep) and _may_be_timed(step.instruction):
            key = kernel_key(step.instruction)
            traffic = step_traffic(step, lowered.plan)
            seconds = max((traffic.read + traffic.written) / _BYTES, traffic.flops / _FLOPS)
            weights[key] = weights.get(key, 0.0) + seconds
            first.setdefault(key, step)
    found: dict[str, Tuning] = {}
    for key in sorted(first, key=lambda k: (-weights[k], k)):
        tuning = _kernel(first[key], key, program, place, deadline)
        if tuning is not None and tuning != program:
            found[key] = tuning
    return found, {key: describe_instruction(first[key].instruction) for key in found}


def _may_be_timed(i: Instruction) -> bool:
    if i.opcode in ("custom-call", "partition-id", "replica-id"):
        return False
    called = [c for _, c in called_computations(i)]
    return not any(inner.opcode in ("while", "custom-call", "call") for c in called for inner in c)


def _kernel(step: KernelStep, key: str, program: Tuning, place: Workplace, deadline: float) -> Tuning | None:
    """The kernel's kept choice, or the best found before the deadline; None when there is no time at all."""
    name = kernel_digest(key, place.machine, place.threads, tuple(program.changes().items()))
    kept = _read(name, place)
    if kept is not None:
        return kept.program
    if time.monotonic() >= deadline:
        return None
    trial = KernelTrial(step, place.machine, place.helpers)
    best = program
    for field, values in kernel_candidates(step.instruction):
        rivals = [r for v in values if trial.differs(r := replace(best, **{field: v}), best)]
        if not rivals or time.monotonic() >= deadline:
            continue
        seconds = compare([trial.runner(t) for t in (best, *rivals)], deadline)
        log.debug(
            "%s, %s %s: %s s", step.instruction.name, field, [getattr(t, field) for t in (best, *rivals)], seconds
        )
        fastest = min(range(len(seconds)), key=seconds.__getitem__)
        if seconds[fastest] < _CLEARLY * seconds[0]:
            winner = rivals[fastest - 1]
            before, after = compare([trial.runner(best), trial.runner(winner)], deadline)
            best = winner if after < _CLEARLY * before else best  # not by chance, then
    _write(name, TuningChoice(best, {}, {}), place)
    return best


# -- what is kept --------------------------------------------------------------------------------------------------


def _path(key: str, place: Workplace) -> Path:
    return place.config.cache_dir / "tuning" / f"{key}.json"


def _read(key: str, place: Workplace) -> TuningChoice | None:
    try:
        data = json.loads(_path(key, place).read_bytes())
        if data["key"] != key:
            return None
        kernels = {str(k): Tuning(**t) for k, t in data["kernels"].items()}
        return TuningChoice(Tuning(**data["program"]), kernels, {str(k): str(w) for k, w in data["words"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(key: str, choice: TuningChoice, place: Workplace) -> None:
    data = {
        "key": key,
        "program": choice.program.changes(),
        "kernels": {k: t.changes() for k, t in choice.kernels.items()},
        "words": dict(choice.descriptions),
    }
    try:
        write_atomically(_path(key, place), json.dumps(data, indent=1, sort_keys=True).encode())
    except OSError:
        return  # the executable itself goes to the cache with a warning where that cannot be written
