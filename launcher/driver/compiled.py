"""`Compiled`: a program loaded on this job's devices; calling it runs one step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from shardc.compiler.outline import executable_outline
from shardc.compiler.targets import check_target
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, ShardcError, UnsupportedError
from shardc.hlo.ir.callbacks import PURE
from shardc.hlo.ir.types import Shape
from shardc.hlo.progress import stage
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.executables import (
    COMPILE_WAIT,
    ProgramCompilation,
    RemoteCompilers,
    compilation_of,
    compilation_of_partitioned,
    share_executable,
)
from shardc.launcher.jobs.job_config import job_config, spare_cores
from shardc.launcher.jobs.mpi_environment import detect_launcher
from shardc.partitioner.program import PartitionedProgram, SourceProgram

if TYPE_CHECKING:
    from shardc.collectives.call.transport import Transport
    from shardc.compiler.executable import Executable
    from shardc.compiler.load.step import LoadedStep
    from shardc.compiler.lower.buffers.memory_timeline import MemoryTimeline
    from shardc.launcher.driver.checked import StepCheck
    from shardc.launcher.run.profile import Profile
    from shardc.native.llvm.target import Target

__all__ = ["Compiled", "compile_partitioned", "compile_program", "job_config", "spare_cores"]

log = logging.getLogger("shardc")


class Compiled:
    """A compiled program, loaded on this job's devices. A call runs one step.

    A program that came from a function takes and returns the function's nested arguments and results. Others take one
    global array per parameter, and return a list of `Array` (or the one `Array`). Element types must match exactly.
    Donated arguments are overwritten, and cannot be used again.

    Raises `InputError` for arguments that do not fit, `RunError` for a step that fails.

    >>> new_down, new_up, loss = compiled(*arguments)
    >>> new_up.shape, new_up.sharding.axes_by_dim[1][0].name
    ((512, 2048), 'model')
    """

    def __init__(
        self,
        executable: Executable | ProgramCompilation,
        jax: Any = None,
        config: Config | None = None,
        seconds: Mapping[str, float] | None = None,
        source: Callable[[], PartitionedProgram] | None = None,
        remote: RemoteCompilers | None = None,
    ) -> None:
        self._source = source
        self._remote = remote
        self.config = config or job_config()
        self.seconds = dict(seconds or {})
        self._jax = jax
        self._compilation = executable if isinstance(executable, ProgramCompilation) else None
        self._executable = None if isinstance(executable, ProgramCompilation) else executable
        if detect_launcher() is None:
            self.executable  # noqa: B018  (what goes wrong belongs here)

    def __repr__(self) -> str:
        return "<Compiled: at its first call>" if self._executable is None else executable_outline(self._executable)

    @property
    def executable(self) -> Executable:
        """The compiled per-device program. In a job, a rank that reads it before the first call compiles on its own."""
        if self._executable is None:
            assert self._compilation is not None
            self._executable, seconds = self._compilation.build(None)
            self.seconds.update(seconds)
        return self._executable

    def share(self) -> Executable:
        """Compile on rank 0 for all ranks of a job, and return `executable`. All ranks must call this.

        >>> compiled.share().name
        'jit_step'
        """
        from shardc.launcher.jobs.job import job_transport

        compilation, transport = self._compilation, job_transport(self.config)
        if compilation is not None and transport.process_count > 1:

            def build(machine: Target | None) -> tuple[Executable, Mapping[str, float]]:
                return (self._executable, {}) if self._executable and machine is None else compilation.build(machine)

            self._executable, seconds = share_executable(replace(compilation, build=build), transport)
            self.seconds.update(seconds)
            self._compilation = None
        return self.executable

    @cached_property
    def _signature(self) -> Any:
        """How arguments and results belong to the function's pytrees, if there is a function."""
        found = self._jax(self.executable) if isinstance(self._jax, FunctionType) else self._jax
        resident = getattr(found, "resident", None)  # one that keeps a part of the arguments between calls
        return found if resident is None else resident(self.executable)

    @cached_property
    def driver(self) -> Any:
        """The program loaded on this job's devices; made at the first call, by all ranks together."""
        from shardc.launcher.jobs.job import job_transport, threads_per_process

        transport = job_transport(self.config)
        config = replace(self.config, num_threads=threads_per_process(self.config))
        executable = self.share()
        check = self._step_check(executable, transport) if config.check else None
        if executable.gpu is not None:
            from shardc.launcher.gpu.driver import GpuDriver

            return GpuDriver.of(executable, transport, config, check, array_type=Array)
        from shardc.launcher.driver.driver import Driver

        return Driver(executable, self.step, transport, config, self.step.pool, check, array_type=Array)

    def _step_check(self, executable: Executable, transport: Transport) -> StepCheck | None:
        """What compares steps with the unpartitioned program; None, with a warning, where no rank has that."""
        from shardc.launcher.driver.checked import StepCheck, Unpartitioned

        first = transport.process_index == 0
        effect = next((h for h in executable.hosts if h.title != PURE), None)
        if effect is not None:
            if first:
                log.warning("SHARDC_CHECK: %s has effects (%s): steps are not compared", executable.name, effect.title)
            return None
        program = Unpartitioned.of(self._source().propagated) if first and self._source is not None else None
        if transport.exchange_objects(program is not None, doing="loading a program", timeout_factor=COMPILE_WAIT)[0]:
            return StepCheck(program, executable, transport)
        if first:
            log.warning(
                "SHARDC_CHECK: %s was given partitioned or compiled: its steps cannot be compared", executable.name
            )
        return None

    def release(self) -> None:
        """Free the memory that steps work in. The next call takes it again, in a job on all ranks together.

        >>> compiled.release()
        """
        self.__dict__.pop("driver", None)

    @cached_property
    def step(self) -> LoadedStep:
        """The native step, linked into this process; programs for GPUs have none."""
        from shardc.compiler.load.step import load_step

        return load_step(self.executable, self.config.custom_calls, self.config)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._jax is not None:
            run = self.driver  # in a job nothing is known before
            try:
                flat = self._signature.flatten(args, kwargs)
            except ShardcError:
                run.begun += 1  # a step that this rank leaves out
                raise
            return self._signature.unflatten(list(run(flat)))
        if kwargs:
            raise InputError(
                f"arguments by name ({', '.join(kwargs)}) are possible only for a JAX function",
                fix="pass arguments by position",
            )
        results = self.run(args)
        return results[0] if len(results) == 1 else results

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Run one step on flat arguments, one per parameter; returns one `Array` per flattened result.

        >>> [result.shape for result in compiled.run(arguments)]
        [(2048, 512), (512, 2048), ()]
        """
        return list(self.driver(arguments))

    def profile(self, *args: Any, steps: int = 5, **kwargs: Any) -> Profile:
        """Measure the time of each kernel over ``steps`` steps, with arguments like those of a call.

        This compiles the program again, with a clock around every kernel; the object itself keeps its speed. Donated
        arguments are copied and stay usable. ``print`` shows a table, ``trace("step.json")`` writes a timeline for
        https://ui.perfetto.dev. Times are seconds. Raises `InputError` for a loaded program that was compiled
        without profiling.

        >>> profile = compiled.profile(*arguments, steps=1)
        >>> profile.step_seconds > 0
        True
        """
        from shardc.launcher.run.profile import profile_steps

        flat = self._signature.flatten(args, kwargs) if self._jax is not None else list(args)
        return profile_steps(self._timed(), flat, steps)

    @cached_property
    def _profiled(self) -> Compiled:
        from shardc.compiler.targets import name_of

        target = name_of(self.executable.target)
        return compile_partitioned(self._partitioned(), target, profile=True, remote=self._remote)

    def _timed(self) -> Compiled:
        return self if self.executable.profile is not None else self._profiled

    def partitioned(self) -> Any:
        """The stage that this program was compiled from.

        Raises `InputError` for a program that was loaded from a file.

        >>> compiled.partitioned().num_devices
        4
        """
        return self._partitioned()

    def _partitioned(self) -> PartitionedProgram:
        if self._source is None:
            raise InputError(
                f"{self.executable.name} was loaded as an executable, without its program",
                fix="load and compile the program itself",
            )
        return self._source()

    def memory_analysis(self) -> dict[str, int]:
        """Bytes that one device needs, by use; see `Partitioned.memory_analysis`.

        >>> sorted(compiled.memory_analysis())[:2]
        ['aliased_bytes', 'argument_bytes']
        """
        return dict(self.executable.memory)

    def memory_timeline(self) -> MemoryTimeline:
        """Which values are in memory during each step of the program, and how many bytes.

        Raises `InputError` for a program that was loaded from a file.

        >>> timeline = compiled.memory_timeline()
        >>> timeline.in_use[timeline.peak] == max(timeline.in_use)
        True
        """
        from shardc.compiler.lower.buffers.memory_timeline import memory_timeline
        from shardc.compiler.lower.for_gpu import lower_for_gpu
        from shardc.compiler.lower.pipeline import PASSES, apply_tuning, lower
        from shardc.compiler.tuning import Tuning
        from shardc.native.gpu.target import target_of

        module, executable = self._partitioned().compiled_module, self.executable
        if executable.gpu is not None:
            return memory_timeline(lower_for_gpu(module, target_of(executable.target), self.config))
        passes = apply_tuning(PASSES, Tuning(**executable.tuning.get("program", {})))
        return memory_timeline(lower(module, self.config, passes=passes))

    def memory_picture(self, path: str | Path) -> None:
        """Write `memory_timeline` as a picture (SVG), with the names of the largest values at the peak.

        Raises `InputError` for a file that cannot be written, and as `memory_timeline`.

        >>> compiled.memory_picture("memory.svg")
        """
        from shardc.launcher.drawings.draw_memory import memory_svg
        from shardc.launcher.run.output_files import check_writable, write_text

        check_writable(Path(path), ".svg")
        write_text(Path(path), memory_svg(self.memory_timeline()))

    @property
    def parameter_shapes(self) -> list[Shape]:
        """Global shapes by parameter."""
        return [a.global_shape for a in self.executable.arguments]

    def save(self, path: str | Path) -> None:
        """Write the compiled program to a file that `load_executable` reads. An interrupted call leaves no
        half-written file.

        Raises `UnsupportedError` for a program that calls Python, `InputError` for a file that cannot be written.

        >>> compiled.save("step.shardc")
        """
        from shardc.compiler.cache.serialize import save
        from shardc.launcher.run.output_files import check_writable

        calls = self.executable.hosts
        if calls:
            raise UnsupportedError(
                f"{calls[0].title} calls Python functions, which cannot be saved in a file",
                where=calls[0].place,
                fix="compile the function in the process that runs it: the cache keeps executables",
            )
        check_writable(Path(path))
        save(self.executable, Path(path))


def compile_program(
    program: SourceProgram, target: str = "cpu", *, tune: float | None = None, remote: RemoteCompilers | None = None
) -> Compiled:
    """``program`` partitioned and compiled for ``target``; a program in the cache is not partitioned again. ``tune`` is
    that of `compile_partitioned`. ``remote`` may find a service that compiles it.
    """
    check_target(target)
    program = program if tune is None else program.tuned(tune)
    away = None if remote is None else remote(program.config, lambda: program, target)
    compilation = compilation_of(program.content, program.config, lambda: program, target, remote=away)
    return Compiled(compilation, program.jax, program.config, program.seconds, program.partition, remote)


@stage("compile")
def compile_partitioned(
    partitioned: PartitionedProgram,
    target: str = "cpu",
    *,
    profile: bool = False,
    tune: float | None = None,
    remote: RemoteCompilers | None = None,
) -> Compiled:
    """The per-device program compiled for ``target`` and loaded on this job's devices.

    With ``profile`` steps record what each kernel takes. ``tune`` are seconds in which other tile sizes, chunks and
    fusions are tried. Raises `UnsupportedError` for unknown targets, and for tuning on GPUs; `EnvironmentProblem`,
    with the reason, where ``cuda`` is not there. ``remote`` may find somebody else who compiles it.
    """
    check_target(target)
    if tune is not None:
        propagated = partitioned.propagated
        tuned = replace(propagated, program=propagated.program.tuned(tune))
        return compile_partitioned(replace(partitioned, propagated=tuned), target, profile=profile, remote=remote)
    propagated, config = partitioned.propagated, partitioned.program.config
    stages = {"conservative": propagated.conservative, "options": partitioned.options, "profile": profile}
    away = None if remote is None else remote(config, lambda: partitioned.program, target, **stages)
    compilation = compilation_of_partitioned(partitioned, profile=profile, target=target, remote=away)
    return Compiled(compilation, partitioned.program.jax, config, partitioned.seconds, lambda: partitioned, remote)
