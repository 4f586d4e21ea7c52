"""Loops of collectives by kind and bytes among all the devices of a program, and what a step takes around them.

On the ranks of a job all of them call these functions together; alone the devices are virtual ones.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shardc.analysis.calibrate.clock import Timing, per_trip, spread_of
from shardc.analysis.calibrate.programs import MeasuredLoop, arguments_of, module_text
from shardc.compiler.compile import compile_module
from shardc.compiler.executable import Executable
from shardc.hlo.config import Config
from shardc.hlo.text.reader import read_hlo
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.compiled import Compiled
from shardc.launcher.driver.executables import ProgramCompilation
from shardc.launcher.jobs.job import job_transport
from shardc.native.llvm.target import Target
from shardc.partitioner.prepare.adopt_partitioned import adopt

__all__ = ["COLLECTIVES", "collective_loops", "measure_exchanges", "measure_steps"]

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
#: Bytes of the larger one of operand and result.
SIZES = (1 << 8, 1 << 12, 1 << 16, 1 << 19, 1 << 22, 1 << 24)
#: Seconds that all trips of a loop take together, roughly; what one trip takes besides its bytes, and bytes per second.
_LOOP, _LATENCY, _RATE = 6e-3, 2e-5, 4e9


def collective_loops(devices: int, sizes: Sequence[int] = SIZES, *, computing: bool = False) -> list[MeasuredLoop]:
    """Each loop exchanges its state, which keeps its values; their names are ``opcode bytes-of-the-result``.

    What cannot work in place is done there and back, so that nothing is copied in between. ``computing``: the devices
    compute before each exchange.
    """
    loops = [_exchange(op, devices, nbytes) for op in COLLECTIVES for nbytes in sizes]
    return [_beside_computing(loop) for loop in loops] if computing else loops


def _exchange(op: str, devices: int, nbytes: int) -> MeasuredLoop:
    n = max(devices, nbytes // 4 // devices * devices)
    part, whole = f"f32[{n // devices}]", f"f32[{n}]"
    everybody = "{{" + ",".join(map(str, range(devices))) + "}}"
    ring = "{" + ",".join(f"{{{d},{(d + 1) % devices}}}" for d in range(devices)) + "}"
    groups = f"replica_groups={everybody}, use_global_device_ids=true"
    zero, size = "  %at = s32[] constant(0)", 4 * n
    state, lines, result = whole, [], "%r"
    if op == "all-reduce":
        lines = [f"  %r = {whole} all-reduce(%state0), {groups}, channel_id=1, to_apply=%sum_f32 @"]
    elif op == "collective-permute":
        lines = [
            f"  %q = {whole} collective-permute(%state0), source_target_pairs={ring}, channel_id=1 @",
            f"  %r = {whole} collective-permute(%q), source_target_pairs={ring}, channel_id=2 @",
        ]
    elif op == "all-to-all":
        state = f"f32[{devices},{n // devices}]"
        how = f"replica_groups={everybody}, dimensions={{0}}"
        lines = [
            f"  %q = {state} all-to-all(%state0), {how}, channel_id=1 @",
            f"  %r = {state} all-to-all(%q), {how}, channel_id=2 @",
        ]
    elif op == "all-gather":
        state = part
        lines = [
            f"  %all = {whole} all-gather(%state0), {groups}, channel_id=1, dimensions={{0}} @",
            "  %first = f32[1] slice(%all), slice={[0:1]}",
            zero,
            f"  %r = {part} dynamic-update-slice(%state0, %first, %at)",
        ]
    else:
        size = 4 * n // devices
        lines = [
            f"  %mine = {part} reduce-scatter(%state0), {groups}, channel_id=1, dimensions={{0}}, to_apply=%sum_f32 @",
            "  %first = f32[1] slice(%mine), slice={[0:1]}",
            zero,
            f"  %r = {whole} dynamic-update-slice(%state0, %first, %at)",
        ]
    trips = int(max(4, min(200, _LOOP / (_LATENCY + nbytes / _RATE))))
    times = sum(line.endswith("@") for line in lines)
    return MeasuredLoop(f"{op} {size}", (state,), "\n".join(lines), (result,), trips, (0.0,), _SUM, times)


#: What devices compute between collectives: enough that they do not arrive together, and less than lets them sleep.
_WORK = f"f32[{1 << 17}]"
_COMPUTED = f"  %computed = {_WORK} sine(%state0) @"


def _beside_computing(loop: MeasuredLoop) -> MeasuredLoop:
    body = "\n".join([_COMPUTED.replace("%state0", "%state1"), loop.body])
    trips = min(loop.trips, 100)
    shapes, results, values = (*loop.shapes, _WORK), (*loop.results, "%computed"), (*loop.values, 0.1)
    return replace(loop, shapes=shapes, body=body, results=results, trips=trips, values=values)


def _computing() -> MeasuredLoop:
    """The same without a collective."""
    return MeasuredLoop(_ALONE, (_WORK,), _COMPUTED, ("%computed",), 100, (0.1,))


_ALONE = "computing"


_SUM = "%sum_f32 (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
_SUM += "  ROOT %c = f32[] add(%a, %b)\n}"


def measure_exchanges(devices: int, config: Config, runs: int) -> dict[str, Timing]:
    """Seconds of one execution of every collective by ``opcode bytes``: on the slowest device, the median over runs.

    Ranks compute in between, as in programs, so that they do not arrive together and caches hold other things: what
    counts is how much longer that takes than computing alone. Virtual devices that share cores would disturb that.
    """
    ranks = job_transport(config).process_count > 1
    loops = [_computing(), *collective_loops(devices, computing=ranks)]
    program = _program(module_text(loops, devices), config, profile=True)
    driver, plan = program.driver, program.executable.profile
    assert plan is not None
    values = _make_arguments(program, arguments_of(loops))
    samples: dict[str, list[float]] = {loop.name: [] for loop in loops[1:]}
    for n in range(runs + 1):
        for arena in driver.arenas.values():
            plan.record_integers(arena)[:] = 0
        driver.transport.exchange_objects(n)  # start together
        driver(values)
        mine = [per_trip(plan.sites, plan.read(arena), loops) for arena in driver.arenas.values()]
        everybody = [found for process in driver.transport.exchange_objects(mine) for found in process]
        rounds = {loop.name: max(found[loop.name] for found in everybody) * loop.times for loop in loops}
        for loop in loops[1:] if n else ():
            spent = rounds[loop.name] - ranks * rounds[_ALONE]
            samples[loop.name].append(max(_LEAST, spent) / loop.times)
    return {name: Timing(statistics.median(s), spread_of(s)) for name, s in samples.items()}


#: Seconds that any collective takes.
_LEAST = 2e-7

#: Pairs of an argument and a result that the two small programs have.
_FEW, _MANY = 2, 34


def measure_steps(devices: int, config: Config, runs: int) -> list[float]:
    """(seconds, seconds per array) of a call of a small program besides its kernels: the slowest rank's median."""
    found = []
    for arrays in (_FEW, _MANY):
        program = _program(_small(devices, arrays), config, profile=False)
        driver = program.driver
        values = _make_arguments(program, [np.ones(8, np.float32)] * arrays)
        spent = []
        for _ in range(20 * runs):
            start = time.perf_counter()
            driver(values)
            spent.append(time.perf_counter() - start)
        found.append(max(driver.transport.exchange_objects(statistics.median(spent[runs:]))))
    each = max(0.0, found[1] - found[0]) / (2 * (_MANY - _FEW))
    return [max(1e-7, found[0] - 2 * _FEW * each), each]


def _make_arguments(program: Compiled, locally: Sequence[NDArray[np.generic]]) -> list[Array]:
    """Arguments whose parts on every device are filled with the values of the arrays given."""
    driver, specs = program.driver, program.executable.arguments
    whole = [np.full(s.global_shape.dims, a.flat[0], a.dtype) for s, a in zip(specs, locally, strict=True)]
    return [driver.put(n, a) for n, a in enumerate(whole)]


def _small(devices: int, arrays: int) -> str:
    """A program that exchanges one of its small arguments and negates the others."""
    lines = [f"  %a{n} = f32[8] parameter({n})" for n in range(arrays)]
    lines += [f"  %r{n} = f32[8] negate(%a{n})" for n in range(1, arrays)]
    first = "%a0"
    if devices > 1:
        groups = "{{" + ",".join(map(str, range(devices))) + "}}"
        lines.append(
            f"  %r0 = f32[8] all-reduce(%a0), replica_groups={groups}, channel_id=1, use_global_device_ids=true, "
            "to_apply=%sum_f32"
        )
        first = "%r0"
    shapes = ", ".join(["f32[8]"] * arrays)
    results = ", ".join([first, *(f"%r{n}" for n in range(1, arrays))])
    header = "HloModule small" + (f", num_partitions={devices}" if devices > 1 else "")
    parameters = ", ".join(f"a{n}: f32[8]" for n in range(arrays))
    entry = [f"ENTRY %main ({parameters}) -> ({shapes}) {{", *lines, f"  ROOT %t = ({shapes}) tuple({results})", "}"]
    return "\n\n".join([header, _SUM, "\n".join(entry)]) + "\n"


def _program(text: str, config: Config, *, profile: bool) -> Compiled:
    """``text`` compiled for the devices that it names; in a job by rank 0 for all."""

    def key() -> str:
        return hashlib.sha256(f"{profile} {text}".encode()).hexdigest()

    def build(machine: Target | None) -> tuple[Executable, Mapping[str, float]]:
        module = read_hlo(text)
        module = adopt(module) if module.num_partitions > 1 else module
        return compile_module(module, config, profile=profile, machine=machine), {}

    return Compiled(ProgramCompilation(key, build), config=config)
