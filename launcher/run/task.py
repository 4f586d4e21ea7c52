"""Running a compiled program file: in this process, on ranks that it starts, or in the job that it is part of."""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardc.compiler.executable import Executable
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, ShardcError
from shardc.hlo.files import target_of
from shardc.hlo.progress import stage
from shardc.hlo.units import count_text
from shardc.launcher.arrays.gather import gather
from shardc.launcher.arrays.meshes import require_devices
from shardc.launcher.driver.checked import Unpartitioned, need_agreement
from shardc.launcher.driver.communication import communication_summary, communication_times, counts
from shardc.launcher.jobs.failures import SharedFailureError
from shardc.launcher.run.npz import encode, read_inputs, read_outputs, write_outputs
from shardc.launcher.run.random_inputs import random_arguments

if TYPE_CHECKING:
    from shardc.launcher.jobs.mpiexec import JobOptions
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["Outcome", "RunTask", "run_in_job", "run_task", "start_ranks"]


@dataclass(frozen=True, slots=True)
class RunTask:
    """What to do with an executable: ``steps`` 0 runs it once on its inputs, more times it.

    ``profile`` is for one that was compiled for profiling; ``trace`` names the file for the last step's events,
    ``profile_out`` the one for measured times (`shardc.compiler.measured`).
    """

    inputs: str = ""
    outputs: str = ""
    seed: int = 0
    steps: int = 0
    warmup: int = 0
    devices_per_rank: int = 0
    profile: bool = False
    trace: str = ""
    profile_out: str = ""

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> RunTask:
        return RunTask(**json.loads(text))


#: What rank 0 tells people and ``--json``: plain data.
Outcome = dict[str, Any]


def run_task(
    executable: Executable, task: RunTask, config: Config, source: Callable[[], PartitionedProgram] | None = None
) -> Outcome:
    """Run on this job's devices (virtual ones without a job); the same outcome on every rank, rank 0 writes files.

    ``source`` gives what was compiled, for ``config.check``; in a job rank 0 needs it.
    """
    from shardc.launcher.driver.compiled import Compiled
    from shardc.launcher.jobs.job import job_transport

    transport = job_transport(config)
    if task.devices_per_rank:
        require_devices(executable.num_devices, transport.process_count, task.devices_per_rank)
    arguments = _arguments(executable, task)
    compiled = Compiled(executable, config=config, source=source)
    outcome: Outcome = {
        "program": executable.name,
        "devices": executable.num_devices,
        "ranks": transport.process_count,
        "seconds": executable.seconds,
        "peak_bytes": executable.memory.get("peak_bytes", 0),
        **({"tuning": executable.tuning} if executable.tuning else {}),
    }
    if task.profile:
        return {**outcome, **_profile(compiled, arguments, task)}
    if task.steps:
        return {**outcome, **_time_steps(compiled, arguments, task)}
    start = time.perf_counter()
    with stage("run"):
        results = _completed(compiled.run(arguments))
    seconds = time.perf_counter() - start
    values = [gather(r) for r in results]
    if task.outputs and transport.process_index == 0:
        write_outputs(Path(task.outputs), values, [r.global_shape.dtype for r in executable.results])
    return {**outcome, "step_seconds": seconds, "results": _summaries(executable, values)}


def _completed(results: list[Any]) -> list[Any]:
    """The results of a step, when it is over."""
    for result in results:
        result.block_until_ready()
    return results


def _arguments(executable: Executable, task: RunTask) -> list[NDArray[Any]]:
    if task.inputs:
        return read_inputs(Path(task.inputs), executable.arguments)
    return random_arguments([a.global_shape for a in executable.arguments], task.seed)


def _summaries(executable: Executable, values: Sequence[NDArray[Any]]) -> list[dict[str, Any]]:
    out = []
    for number, (spec, value) in enumerate(zip(executable.results, values, strict=True)):
        stored = encode(value, spec.global_shape.dtype)
        little = np.ascontiguousarray(stored).astype(stored.dtype.newbyteorder("<"), copy=False)
        checksum = hashlib.sha256(little.tobytes()).hexdigest()[:16]
        dtype, shape = spec.global_shape.dtype.name, list(value.shape)
        out.append({"index": number, "name": spec.name, "dtype": dtype, "shape": shape, "checksum": checksum})
    return out


@stage("run")
def _time_steps(compiled: Any, arguments: Sequence[Any], task: RunTask) -> Outcome:
    """Times of steps on the same inputs, which lie on the devices; donated ones are put there anew every time."""
    driver = compiled.driver
    values = [driver.put(number, a) for number, a in enumerate(arguments)]
    seconds = []
    before = counts(driver)
    for number in range(task.warmup + task.steps):
        driver.transport.exchange_objects(number)  # start together
        if number == task.warmup:
            before = counts(driver)
        start = time.perf_counter()
        _completed(compiled.run(values))
        if number >= task.warmup:
            seconds.append(time.perf_counter() - start)
        for donated in driver.executable.donated:
            values[donated] = driver.put(donated, arguments[donated])
    everybody = driver.transport.exchange_objects((before, counts(driver)))
    rows = communication_times(
        driver.executable.collectives, task.steps, [b for b, _ in everybody], [a for _, a in everybody]
    )
    return {
        "steps": task.steps,
        "step_seconds": statistics.median(seconds),
        "communication": communication_summary(rows, statistics.median(seconds)),
        "fastest_step_seconds": min(seconds),
        "slowest_step_seconds": max(seconds),
        "collectives_per_step": driver.collectives_done // driver.steps,
    }


def _profile(compiled: Any, arguments: Sequence[Any], task: RunTask) -> Outcome:
    """Times of steps, and of the kernels in them."""
    from shardc.launcher.run.profile import profile_steps

    driver = compiled.driver
    profile = profile_steps(compiled, arguments, task.steps, task.warmup)
    if driver.transport.process_index == 0:
        if task.trace:
            profile.trace(task.trace)
        if task.profile_out:
            profile.write_measured(task.profile_out)
    return {
        "steps": task.steps,
        "step_seconds": profile.step_seconds,
        "fastest_step_seconds": min(profile.all_steps),
        "slowest_step_seconds": max(profile.all_steps),
        "collectives_per_step": driver.collectives_done // driver.steps,
        "communication": profile.communication,
        "profile": profile.as_dict(),
    }


def _mesh_for(executable: Executable, ranks: int) -> str:
    """Options that give the program as many devices: one of its own axes longer, where one can be."""
    meshes = [a.sharding.mesh for a in (*executable.arguments, *executable.results) if a.sharding is not None]
    axes = meshes[0].axes if meshes and executable.num_devices > 1 else ()
    for name, size in axes:
        others = executable.num_devices // size
        if ranks % others == 0:
            return f"--mesh {name}={ranks // others}"
    if axes:
        return "--mesh " + ",".join(f"{name}={ranks if n == 0 else 1}" for n, (name, _) in enumerate(axes))
    return f"--mesh x={ranks} with an --annotate NAME=x that splits an argument over it"


def start_ranks(
    executable: Executable,
    task: RunTask,
    ranks: int,
    config: Config,
    flags: Sequence[str] = (),
    options: JobOptions | None = None,
    whole: Unpartitioned | None = None,
) -> int:
    """Run ``task`` on ``ranks`` MPI ranks that load the executable compiled here; returns the job's exit code.

    With ``whole`` results of a run are compared with those of the unpartitioned program; `RunError` where they differ.
    """
    from shardc.compiler.cache.serialize import save
    from shardc.launcher.jobs.mpiexec import JobOptions, start_job

    require_devices(executable.num_devices, ranks, task.devices_per_rank or -(-executable.num_devices // ranks))
    if ranks > executable.num_devices:
        devices = executable.num_devices
        raise InputError(
            f"the program runs on {count_text(devices, 'device')}, but --ranks is {ranks}",
            fix=f"give a mesh of {count_text(ranks, 'device')}, such as {_mesh_for(executable, ranks)}, or use --ranks "
            f"{'1' if devices == 1 else f'1 to {devices}'}",
        )
    with tempfile.TemporaryDirectory(prefix="shardc-", dir=_shared_folder(config)) as folder:
        path = Path(folder) / "program.shardc"
        save(executable, path)
        compares = whole is not None and not task.steps and not task.profile
        if compares and task.outputs and not (task.outputs != "-" and target_of(Path(task.outputs))[1]):
            raise InputError(
                f"SHARDC_CHECK must read {task.outputs} back", fix="name a regular file, or omit --outputs"
            )
        if compares and not task.outputs:
            task = replace(task, outputs=str(Path(folder) / "out.npz"))
        runner = [sys.executable, "-m", "shardc.launcher.jobs.rank_main", "-m", "shardc.cli.rank"]
        line = [*runner, str(path), task.dump(), *flags]
        code = start_job(ranks, line, options=options or JobOptions())
        if code == 0 and compares and whole is not None:
            results = read_outputs(Path(task.outputs), executable.results)
            need_agreement(executable.name, whole.compare(_arguments(executable, task), results))
        return code


def _shared_folder(config: Config) -> Path | None:
    """Where ranks on other nodes find a file too: the cache folder, when it can be written."""
    folder = config.cache_dir / "jobs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


def run_in_job(
    make: Callable[[], Executable],
    task: RunTask,
    config: Config,
    source: Callable[[], PartitionedProgram] | None = None,
) -> Outcome:
    """Inside a running job: rank 0 makes the executable and gives it to the others; so an error is told once.

    ``source`` as in `run_task`, called on rank 0 when the executable is made.
    Raises `SharedFailureError` with the error of rank 0 on every rank.
    """
    from shardc.compiler.cache.serialize import read_bytes, to_bytes
    from shardc.launcher.jobs.job import job_transport

    transport = job_transport(config)
    made: bytes | ShardcError = b""
    if transport.process_index == 0:
        try:
            made = to_bytes(make())
        except ShardcError as e:
            made = e
    # Compiling may take longer than ranks usually wait for each other.
    first = transport.exchange_objects(made, timeout_factor=20.0)[0]
    if isinstance(first, ShardcError):
        raise SharedFailureError(first)
    return run_task(read_bytes(first), task, config, source if transport.process_index == 0 else None)
