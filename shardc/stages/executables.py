"""Making executables: by this process, or by rank 0 of a job, which hands its own to the others.

All ranks that ask for the same program on the same kind of processor get rank 0's executable. It is compiled for what
their CPUs have in common, so that all of them run the same instructions and get the same bits; ranks with another
program or another kind of processor compile for themselves (and are told about it when they load it).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from shardc.hlo.config import Config
from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import collector_paused

if TYPE_CHECKING:
    from shardc.collectives.call.transport import Transport
    from shardc.compiler.executable import Executable
    from shardc.native.llvm.target import Target
    from shardc.service.client.compile_remotely import Elsewhere, Ticket
    from shardc.stages.stages import Partitioned, Program

__all__ = ["PATIENCE", "Making", "handed_out", "making_of", "making_of_partitioned"]

#: How much longer than usual ranks wait for the one that compiles.
PATIENCE = 20.0

#: An executable, and seconds by stage.
Made = tuple["Executable", Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Making:
    """What can be compiled: ``key`` tells it from all else, ``build`` compiles it for a CPU (None: this one), or has it
    from ``compile_remotely``, a compile service, if there is one. ``title`` is what the other ranks hear of it."""

    key: Callable[[], str]
    build: Callable[[Target | None], Made]
    compile_remotely: Elsewhere | None = None
    title: Callable[[], str] = lambda: "a program"


def making_of(
    content: str,
    config: Config,
    program: Callable[[], Program],
    target: str = "cpu",
    title: Callable[[], str] | None = None,
) -> Making:
    """Of a ``program``, which is not made when the cache knows its ``content``, or another rank does."""

    compile_remotely = _elsewhere(config, program, target)

    def build(machine: Target | None) -> Made:
        seconds: dict[str, float] = {}

        def module() -> Module:
            start = time.perf_counter()
            made, stages = _to_compile(program(), config)
            seconds.update(stages, compile=start - time.perf_counter())
            return made

        start = time.perf_counter()
        with collector_paused():  # imports and short stages, beside JAX's many objects
            from shardc.compiler.compile_source import compile_source

            known, ask = content, None
            if compile_remotely is not None:
                known, ask = content or compile_remotely.source(machine), partial(compile_remotely.executable, machine)
            executable = compile_source(known, config, module, machine, target, ask)
        seconds["compile"] = seconds.get("compile", 0.0) + time.perf_counter() - start
        return executable, seconds

    def key() -> str:
        from shardc.compiler.cache.cache import code_settings

        if not content:
            return _key(_to_compile(program(), config)[0], config, target)
        return f"{content} {code_settings(config)} {_device(target)}"

    return Making(key, build, compile_remotely, title or (lambda: program().module.name))


def making_of_partitioned(partitioned: Partitioned, *, profile: bool = False, target: str = "cpu") -> Making:
    """Of a per-device program; with ``profile`` its steps record what each kernel takes."""
    config, propagated = partitioned.program.config, partitioned.propagated
    stages = {"conservative": propagated.conservative, "options": partitioned.options, "profile": profile}
    compile_remotely = _elsewhere(config, lambda: partitioned.program, target, **stages)

    def build(machine: Target | None) -> Made:
        from shardc.compiler.compile import compile_module

        def ask() -> Executable | None:
            given = None if compile_remotely is None else compile_remotely.executable(machine)
            return None if given is None else given[0]

        start = time.perf_counter()
        with collector_paused():
            executable = compile_module(
                partitioned.compiled_module, config, target, profile=profile, machine=machine, compile_remotely=ask
            )
        return executable, {"compile": time.perf_counter() - start}

    return Making(
        lambda: _key(partitioned.compiled_module, config, target, profile),
        build,
        compile_remotely,
        lambda: partitioned.module.name,
    )


def _elsewhere(config: Config, program: Callable[[], Program], target: str, **stages: Any) -> Elsewhere | None:
    if not config.server:
        return None
    from shardc.service.client.compile_remotely import Elsewhere

    return Elsewhere.of(config, program, target, **stages)


def _to_compile(program: Program, config: Config) -> tuple[Module, Mapping[str, float]]:
    if program.for_one_device and config.dump_to is None:
        return program.module, program.seconds
    partitioned = program.partition()
    return partitioned.compiled_module, partitioned.seconds


def _key(module: Module, config: Config, target: str, *more: object) -> str:
    from shardc.compiler.cache.cache import code_settings, module_key

    return module_key(module, None, *code_settings(config), _device(target), *more)


def _device(target: str) -> str:
    """What ``target`` means on this rank."""
    from shardc.compiler.targets import find_target, is_gpu

    return str(find_target(target)) if is_gpu(target) else target


def handed_out(making: Making, transport: Transport) -> Made:
    """The executable of ``making`` for this rank of a job; all ranks call it together.

    One that rank 0 has from a compile service, every rank fetches there by its key, and takes rank 0's only where that
    fails. An error of rank 0 is raised on all that wait for its executable.
    """
    from shardc.compiler.cache.serialize import read_bytes
    from shardc.native.llvm.target import common_target, host_target

    host, doing = host_target(), f"making {making.title()}"
    exchange = partial(transport.exchange_objects, doing=doing, patience=PATIENCE)
    asked = exchange((making.key(), host))
    first, leader = asked[0]
    alike = [key == first and common_target([leader, target]) is not None for key, target in asked]
    machine = common_target([target for (_, target), taken in zip(asked, alike, strict=True) if taken])
    rank = transport.process_index
    mine: Made | ShardcError | None = None
    if rank == 0 or not alike[rank]:
        try:
            mine = making.build(machine if rank == 0 and machine != host else None)
        except ShardcError as e:
            mine = e
    given: Ticket | bytes | ShardcError | None = None
    if rank == 0:
        given = _handed(mine) if making.compile_remotely is None else making.compile_remotely.ticket or _handed(mine)
    answer = exchange(given)[0]
    if not isinstance(answer, bytes | ShardcError):
        mine = mine or _fetched(making, answer)
        if not all(exchange(mine is not None)):
            answer = exchange(_handed(mine) if rank == 0 else None)[0]
    if mine is None:
        mine = answer if isinstance(answer, ShardcError) else (read_bytes(answer, "from rank 0"), {})
    if isinstance(mine, ShardcError):
        raise mine
    return mine


def _handed(mine: Made | ShardcError | None) -> bytes | ShardcError | None:
    """What other ranks get of what rank 0 made."""
    from shardc.compiler.cache.serialize import to_bytes

    return to_bytes(mine[0]) if isinstance(mine, tuple) else mine


def _fetched(making: Making, ticket: Ticket) -> Made | None:
    """What rank 0's ``ticket`` is for, from the service; None where this rank cannot have it from there."""
    if making.compile_remotely is None:
        return None
    from shardc.service.client.compile_remotely import redeemed

    start = time.perf_counter()
    executable = redeemed(ticket, making.compile_remotely.config)
    return None if executable is None else (executable, {"service": time.perf_counter() - start})
