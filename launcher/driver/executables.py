"""Making executables: by this process, by a compile service, or by rank 0 of a job, which sends its own to the others.

All ranks that request the same program on the same kind of processor get rank 0's executable. It is compiled for what
their CPUs have in common, so that all of them run the same instructions and get the same bits; ranks with another
program or another kind of processor compile for themselves (and are told about it when they load it).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from shardc.hlo.config import Config
from shardc.hlo.errors import RunError, ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import pause_collector
from shardc.partitioner.program import PartitionedProgram, SourceProgram

if TYPE_CHECKING:
    from shardc.collectives.call.transport import Transport
    from shardc.compiler.executable import Executable
    from shardc.native.llvm.target import Target

__all__ = [
    "COMPILE_WAIT",
    "ProgramCompilation",
    "RemoteCompiler",
    "RemoteCompilers",
    "compilation_of",
    "compilation_of_partitioned",
    "share_executable",
]

log = logging.getLogger("shardc")

#: From how many bytes on, more on each device than its part has, a result is told of.
_TOLD = 1 << 16

#: How much longer than usual ranks wait for the one that compiles, once all have come to it.
COMPILE_WAIT = 20.0

#: An executable, and seconds by stage.
Built = tuple["Executable", Mapping[str, float]]


class RemoteCompiler(Protocol):
    """Has one program compiled outside of this process, such as at a compile service."""

    @property
    def ticket(self) -> Any:
        """What lets other ranks `fetch` the last answer, None without one; it travels as an object of its own."""

    def source(self, machine: Target | None) -> str:
        """What tells the answer for a CPU (None: this one) from all else; empty where nothing can be asked."""

    def executable(self, machine: Target | None) -> tuple[Executable, str] | None:
        """The executable for a CPU and its name in the cache (empty: it is not kept); None where there is none."""

    def fetch(self, ticket: Any) -> Executable | None:
        """What another rank's ``ticket`` is for; None where this rank cannot have it."""


class RemoteCompilers(Protocol):
    """Finds the `RemoteCompiler` for a program and a target; None where it is to be compiled here. ``stages`` are
    ``conservative``, ``options`` and ``profile`` of a program that is partitioned already."""

    def __call__(
        self, config: Config, program: Callable[[], SourceProgram], target: str, **stages: Any
    ) -> RemoteCompiler | None: ...


@dataclass(frozen=True, slots=True)
class ProgramCompilation:
    """A compilation: ``key`` identifies it, ``build`` compiles it for a CPU (None: this one), or gets it from
    ``remote``, if there is one. ``title`` is its name for the other ranks."""

    key: Callable[[], str]
    build: Callable[[Target | None], Built]
    remote: RemoteCompiler | None = None
    title: Callable[[], str] = lambda: "a program"


def compilation_of(
    content: str,
    config: Config,
    program: Callable[[], SourceProgram],
    target: str = "cpu",
    title: Callable[[], str] | None = None,
    remote: RemoteCompiler | None = None,
) -> ProgramCompilation:
    """Of a ``program``, which is not made when the cache knows its ``content``, or another rank does."""

    def build(machine: Target | None) -> Built:
        seconds: dict[str, float] = {}

        def module() -> Module:
            start = time.perf_counter()
            made, stages = _module_to_compile(program(), config)
            seconds.update(stages, compile=start - time.perf_counter())
            return made

        start = time.perf_counter()
        with pause_collector():  # imports and short stages, beside JAX's many objects
            from shardc.compiler.compile_source import compile_source

            known, ask = content, None
            if remote is not None:
                known, ask = content or remote.source(machine), partial(remote.executable, machine)
            executable = compile_source(known, config, module, machine, target, ask)
        seconds["compile"] = seconds.get("compile", 0.0) + time.perf_counter() - start
        return executable, seconds

    def key() -> str:
        from shardc.compiler.cache.cache import code_settings

        if not content:
            return _key(_module_to_compile(program(), config)[0], config, target)
        return f"{content} {code_settings(config)} {_device(target)}"

    return ProgramCompilation(key, build, remote, title or (lambda: program().module.name))


def compilation_of_partitioned(
    partitioned: PartitionedProgram,
    *,
    profile: bool = False,
    target: str = "cpu",
    remote: RemoteCompiler | None = None,
) -> ProgramCompilation:
    """Of a per-device program; with ``profile`` its steps record what each kernel takes."""
    module, config = partitioned.compiled_module, partitioned.program.config

    def build(machine: Target | None) -> Built:
        from shardc.compiler.compile import compile_module

        def ask() -> Executable | None:
            given = None if remote is None else remote.executable(machine)
            return None if given is None else given[0]

        start = time.perf_counter()
        with pause_collector():
            executable = compile_module(module, config, target, profile=profile, machine=machine, compile_remotely=ask)
        return executable, {"compile": time.perf_counter() - start}

    def key() -> str:
        return _key(module, config, target, profile)

    return ProgramCompilation(key, build, remote, lambda: partitioned.module.name)


def _module_to_compile(program: SourceProgram, config: Config) -> tuple[Module, Mapping[str, float]]:
    if program.for_one_device and config.dump_to is None:
        return program.module, program.seconds
    from shardc.compiler.lower.judge_by_lowering import judge_to_compile

    partitioned = program.partition(judge=judge_to_compile(config))
    _warn_of_whole_results(partitioned)
    return partitioned.compiled_module, partitioned.seconds


def _warn_of_whole_results(partitioned: PartitionedProgram) -> None:
    """Log a line for each result that takes much memory since its size does not divide."""
    from shardc.sharding.propagation.whole_results import whole_results

    outcome = partitioned.propagated.outcome
    for result in whole_results(outcome, partitioned.module) if outcome is not None else ():
        if result.bytes_held - result.bytes_of_part >= _TOLD:
            log.warning(
                "%s %s of %s: %s; to keep it split as a shardc.Array, pass out_shardings=%s to shardc.jit; "
                "a size of %d divides evenly",
                result.name, result.shape, partitioned.module.name, result.reason, result.spec, result.padded,
            )  # fmt: skip


def _key(module: Module, config: Config, target: str, *more: object) -> str:
    from shardc.compiler.cache.cache import code_settings, module_key

    return module_key(module, None, *code_settings(config), _device(target), *more)


def _device(target: str) -> str:
    """What ``target`` means on this rank."""
    from shardc.compiler.targets import find_target, is_gpu

    return str(find_target(target)) if is_gpu(target) else target


def share_executable(compilation: ProgramCompilation, transport: Transport) -> Built:
    """The executable of ``compilation`` for this rank of a job; all ranks call it together.

    One that rank 0 has from a compile service, every rank fetches there by its key, and takes rank 0's only where that
    fails. An error of rank 0 is raised on all that wait for its executable.
    """
    from shardc.compiler.cache.serialize import read_bytes
    from shardc.native.llvm.target import common_target, host_target

    host, doing = host_target(), f"the compilation of {compilation.title()}"
    asked = transport.exchange_objects((compilation.key(), host), doing=doing)
    # All have come: the wait behind this is for those who compile.
    exchange = partial(transport.exchange_objects, doing=doing, timeout_factor=COMPILE_WAIT)
    first, leader = asked[0]
    shares = [key == first and common_target([leader, target]) is not None for key, target in asked]
    machine = common_target([target for (_, target), taken in zip(asked, shares, strict=True) if taken])
    rank = transport.process_index
    mine: Built | Exception | None = None
    if rank == 0 or not shares[rank]:
        try:
            mine = compilation.build(machine if rank == 0 and machine != host else None)
        except Exception as e:
            mine = e
    offer: Any = None
    if rank == 0:
        offer = (compilation.remote.ticket if compilation.remote is not None else None) or _to_send(mine)
    answer = exchange(offer)[0]
    if not isinstance(answer, bytes | ShardcError):
        mine = mine or _fetch(compilation, answer)
        if not all(exchange(mine is not None)):
            answer = exchange(_to_send(mine) if rank == 0 else None)[0]
    if mine is None:
        mine = answer if isinstance(answer, ShardcError) else (read_bytes(answer, "from rank 0"), {})
    if isinstance(mine, Exception):
        raise mine
    return mine


def _to_send(mine: Built | Exception | None) -> bytes | ShardcError | None:
    """What other ranks get of what rank 0 made: the executable, or why there is none."""
    from shardc.compiler.cache.serialize import to_bytes

    if isinstance(mine, tuple):
        return to_bytes(mine[0])
    if mine is None or isinstance(mine, ShardcError):
        return mine
    return RunError(
        f"compiling failed on rank 0: {type(mine).__name__}: {mine}",
        fix="this is an error of shardc: report it with the traceback of rank 0",
    )


def _fetch(compilation: ProgramCompilation, ticket: Any) -> Built | None:
    """What rank 0's ``ticket`` is for, from where rank 0 had it; None where this rank cannot have it from there."""
    if compilation.remote is None:
        return None
    start = time.perf_counter()
    executable = compilation.remote.fetch(ticket)
    return None if executable is None else (executable, {"service": time.perf_counter() - start})
