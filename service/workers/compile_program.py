"""Orders of kinds ``partition`` and ``compile``: per-device programs, as text and as executables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardc.hlo.codec import plain
from shardc.hlo.errors import InputError
from shardc.hlo.passes import pause_collector
from shardc.service.orders import CompileOrder, Cpu, PartitionOrder, resolve_order
from shardc.service.results import AheadFacts
from shardc.service.workers.workbench import Workbench

if TYPE_CHECKING:
    from shardc.compiler.executable import Executable
    from shardc.native.llvm.target import Target
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["compile_program", "partition_program"]

#: Architectures that code for processors is made for, as triples begin.
_ARCHITECTURES = ("x86_64", "aarch64", "arm64")


def partition_program(bench: Workbench, order: PartitionOrder) -> dict[str, bytes]:
    """``report.json``, ``partitioned.hlo``, ``stages.json``."""
    return bench.partition_files(bench.partition())


def compile_program(bench: Workbench, order: CompileOrder) -> dict[str, bytes]:
    """`partition_program`'s, the executable, and what the order wants besides."""
    from shardc.analysis.report.write import report_page
    from shardc.compiler.cache.serialize import to_bytes

    machine = _target(order)
    partitioned = bench.partition()
    files = bench.partition_files(partitioned)
    with bench.stage("compile"), pause_collector():
        if order.ahead and order.target == "cpu":
            executable, facts = _ahead(partitioned, order, machine)
            files["ahead.json"] = plain.to_json(facts).encode()
        else:
            executable = _executable(partitioned, order, machine)
        # How long it took is no part of an executable: equal orders make equal files.
        files["executable.shardc"] = to_bytes(replace(executable, seconds={}))
    if order.page:
        with bench.stage("page"):
            page = report_page(partitioned, machine=bench.machine() or None)
            files["report.html"] = page.encode()
    return files


def _executable(partitioned: PartitionedProgram, order: CompileOrder, machine: Target) -> Executable:
    from shardc.compiler.compile import compile_module

    config = partitioned.program.config
    return compile_module(partitioned.compiled_module, config, order.target, profile=order.profile, machine=machine)


def _ahead(partitioned: PartitionedProgram, order: CompileOrder, machine: Target) -> tuple[Executable, AheadFacts]:
    from shardc.analysis.ahead import compile_ahead_for

    program = compile_ahead_for(partitioned, machine, order.symbol)
    found = program.target
    return program.executable, AheadFacts(
        program.name, Cpu(triple=found.triple, cpu=found.cpu, features=found.features)
    )


def _target(order: CompileOrder) -> Target:
    """The processor that the order names, else this one. Raises `InputError` for what is not made code for."""
    from shardc.native.llvm.target import CPUS, Target

    found = resolve_order(order)
    assert isinstance(found, CompileOrder)
    assert found.cpu is not None
    triple, cpu, features = found.cpu.triple, found.cpu.cpu, found.cpu.features.split(",")
    architecture = triple.partition("-")[0]
    if architecture not in _ARCHITECTURES:
        fix = f"use one of {', '.join(_ARCHITECTURES)}"
        raise InputError(f"shardc generates no code for processors {architecture!r}", where="order.cpu.triple", fix=fix)
    wide = cpu in CPUS or "+64bit" in features
    if "-64bit" in features or (architecture == "x86_64" and not wide):  # LLVM ends the process
        fix = f"name +64bit among its features, or use one of {', '.join(CPUS)}"
        raise InputError(f"the processor {cpu!r} does not run 64-bit code", where="order.cpu", fix=fix)
    return Target(triple, cpu, found.cpu.features)
