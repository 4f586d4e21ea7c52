"""The stages of a program: `Program` (annotated) -> `Propagated` -> `Partitioned` -> `Compiled`.

Each stage is immutable and can be printed; each step names what went wrong in the terms of its input.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from shardc.hlo.config import Config
from shardc.hlo.custom_calls import CustomCall, need_new
from shardc.hlo.errors import AnnotationError, EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.ir import Module
from shardc.hlo.mesh import Mesh
from shardc.hlo.types import Shape
from shardc.launcher.mpi_environment import detect_launcher

__all__ = [
    "Compiled",
    "Partitioned",
    "Program",
    "Propagated",
    "from_function",
    "from_jax",
    "job_config",
    "load",
    "load_executable",
    "trace",
    "with_axes",
]


log = logging.getLogger("shardc")


def job_config() -> Config:
    """The settings of the environment; in a job only rank 0 dumps."""
    config, launcher = Config.from_environment(), detect_launcher()
    return replace(config, dump_to=None) if launcher is not None and launcher.rank > 0 else config


@dataclass(frozen=True)
class Program:
    """A global program with some annotations.

    ``jax`` knows the pytrees of a program that came from a JAX or NumPy function; ``original`` are the bytes of the
    file it was read from. Made by `load`, `from_jax` and `trace`.
    """

    module: Module
    jax: Any = None
    original: bytes = b""
    config: Config = field(default_factory=job_config)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def mesh(self) -> Mesh | None:
        """The device mesh, None before one is known."""
        return self.module.mesh

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Names that `annotate` takes, by parameter."""
        return self.module.arg_names or tuple(p.name for p in self.module.parameters)

    def annotate(self, annotations: Mapping[str, Any] | None = None, mesh: Any = None) -> Program:
        """Add shardings to values by name or glob, and give or resize the mesh.

        Example: ``program.annotate({"w1": P(None, "model")}, mesh=Mesh({"data": 2, "model": 4}))``. Raises
        `AnnotationError` for a name, axis or dimension that is not there.
        """
        from shardc.sharding.annotate import annotate

        module = self.module
        wanted = as_mesh(mesh) if mesh is not None else None
        if wanted is not None and module.mesh is None:
            # Tile shardings name no axes: they are read over this mesh.
            module, wanted = with_axes(module.with_(mesh=wanted, num_partitions=wanted.size)), None
        if annotations or wanted is not None:
            module = annotate(module, annotations or {}, wanted)
        return replace(self, module=module)

    def with_custom_calls(self, custom_calls: Mapping[str, CustomCall]) -> Program:
        """Say what custom-call targets mean that shardc does not know.

        Calls with an ``expand`` become HLO instructions at once, so that they are sharded and compiled like any
        others; the rest is kept for evaluation and compiled code. Known targets can be replaced by an ``expand``.
        Example: ``program.with_custom_calls({"scale2": CustomCall(expand=lambda b, call, x: b.add("add", x, x))})``.
        """
        from shardc.compiler.lower.expand_custom_calls import ExpandCustomCalls
        from shardc.sharding.rules.custom_call import with_sharding_rules

        need_new(custom_calls)
        expanded = {target: c for target, c in custom_calls.items() if c.expand is not None}
        module = ExpandCustomCalls(custom_calls=expanded).run(self.module) if expanded else self.module
        rules = {target: c.sharding_rule for target, c in custom_calls.items() if c.sharding_rule}
        module = with_sharding_rules(module, rules) if rules else module
        config = replace(self.config, custom_calls={**self.config.custom_calls, **custom_calls})
        return replace(self, module=module, config=config)

    def propagate(self, *, conservative: bool = False) -> Propagated:
        """Give every value a sharding; annotations are kept, the rest follows from the operations.

        With ``conservative`` no axis is split into parts, and nothing spreads through dimensions whose elements move
        (slices, padding, concatenation, windows): fewer reshards to wonder about, less sharding.
        A program that is partitioned already (a dump from behind XLA's partitioner) stays as it is.
        """
        from shardc.partitioner.adopt import is_partitioned
        from shardc.sharding.options import PropagationOptions
        from shardc.sharding.propagate import propagate

        start = time.perf_counter()
        if is_partitioned(self.module):
            log.warning("%s is partitioned already, for %d devices: it is left as it is", *_size(self.module))
            return Propagated(self, self.module, _AsGiven(), self.seconds)
        options = PropagationOptions(conservative=conservative)
        result = propagate(with_axes(self.module), self.config, options=options)
        seconds = {**self.seconds, **_since("propagate", start)}
        return Propagated(self, result.module, result.provenance, seconds, result.outcome)

    def partition(self, *, machine: str | Path | None = None) -> Partitioned:
        """`propagate`, then `Propagated.partition`."""
        return self.propagate().partition(machine=machine)

    def compile(self, target: str = "cpu") -> Compiled:
        """All the stages at once."""
        return self.partition().compile(target)

    def as_text(self) -> str:
        """The program as HLO text."""
        return str(self.module)

    def as_stablehlo(self) -> str:
        """The MLIR that the program was read from, with ``sdy`` shardings where it has annotations."""
        return self.write_back(self.module)

    def write_back(self, module: Module, versions: Sequence[Any] = ()) -> str:
        """The MLIR that the program was read from, with the shardings of ``module``, a later form of it; ``versions``
        are its functions as their callers see them."""
        original = self.original or (self.jax.original() if hasattr(self.jax, "original") else b"")
        if not original:
            raise UnsupportedError(
                "only a program that came from MLIR or JAX can be written as MLIR", fix="write it as HLO text"
            )
        from shardc.hlo.stablehlo.writer import write_stablehlo

        return write_stablehlo(original, module, versions)


@dataclass(frozen=True)
class Propagated:
    """Every value has a sharding; ``provenance`` knows why."""

    program: Program
    module: Module
    provenance: Any
    seconds: Mapping[str, float]
    outcome: Any = None

    def partition(self, *, machine: str | Path | None = None) -> Partitioned:
        """Rewrite into the program that every device runs, with the collectives it needs.

        They are chosen for the fewest bytes, or for the least modelled time on a ``machine``: a name such as
        ``"h100-dgx"`` or the path of a description. Raises `InputError` for unknown machines.
        """
        from shardc.collectives.machine import load_machine
        from shardc.partitioner.adopt import adopt, is_partitioned
        from shardc.partitioner.partition import partition

        start = time.perf_counter()
        given = is_partitioned(self.module)
        described = None if machine is None else load_machine(machine)
        module = adopt(self.module) if given else partition(self.module, self.program.config, machine=described)
        return Partitioned(self, module, {**self.seconds, **_since("partition", start)})

    def provenance_dict(self) -> dict[str, Any]:
        """Where every axis came from, as plain data (docs/cli.md has the schema).

        Raises `InputError` for a program that was partitioned already.
        """
        from shardc.sharding.provenance import Provenance
        from shardc.sharding.provenance_json import provenance_dict

        if not isinstance(self.provenance, Provenance):
            raise InputError("the program is partitioned already: nothing was propagated")
        return provenance_dict(self.provenance)

    def explain(self, value: str) -> list[str]:
        """Where the sharding of the value called ``value`` comes from."""
        return list(self.provenance.explain(value))

    def as_text(self) -> str:
        """HLO text with a sharding on every instruction."""
        return str(self.module)

    def as_stablehlo(self) -> str:
        """The MLIR that the program was read from, with ``sdy`` shardings on its values."""
        versions = [] if self.outcome is None else self.outcome.versions()
        if len(versions) == len({v.source for v in versions}):
            return self.program.write_back(self.module)
        return self.program.write_back(self.outcome.as_written(), versions)


@dataclass(frozen=True)
class Partitioned:
    """The per-device program."""

    propagated: Propagated
    module: Module
    seconds: Mapping[str, float]

    @property
    def program(self) -> Program:
        return self.propagated.program

    @property
    def num_devices(self) -> int:
        return self.module.num_partitions

    def as_text(self) -> str:
        """HLO text that XLA compiles and runs as it is."""
        return str(self.module)

    @cached_property
    def _report(self) -> dict[str, Any]:
        from shardc.partitioner.report import build_report

        return build_report(self.module, seconds=dict(self.seconds))

    def report(self) -> dict[str, Any]:
        """Devices, mesh, parameters, results, collectives with sizes and reasons, flops: plain data for JSON."""
        return dict(self._report)

    def explain(self) -> list[str]:
        """One entry per collective: what it moves, for which value and source line, and why."""
        return [_explain_collective(c) for c in self._report["collectives"]]

    def memory_analysis(self) -> dict[str, int]:
        """Bytes that one device needs, by what for; ``peak`` is their sum less what results share with arguments."""
        return dict(self._executable().memory)

    def _executable(self, target: str = "cpu") -> Any:
        from shardc.compiler.compile import compile_module

        return compile_module(self.module, self.program.config, target)

    def compile(self, target: str = "cpu") -> Compiled:
        """Native code, loaded on this job's devices: virtual ones, or MPI ranks when started by a launcher.

        Raises `UnsupportedError` for a target other than ``cpu``.
        """
        if target != "cpu":
            raise UnsupportedError(f"programs are not compiled for {target!r} yet", fix='use compile("cpu")')
        start = time.perf_counter()
        executable = self._executable(target)
        seconds = {**self.seconds, **_since("compile", start)}
        return Compiled(executable, self.program.jax, self.program.config, seconds)

    def simulate(self, machine: str) -> Any:
        """Not there yet: predictions for a described machine."""
        raise UnsupportedError(
            f"simulation (here for {machine!r}) is not there yet",
            fix="the report has wire_bytes and flops per device: partitioned.report()",
        )


class Compiled:
    """A compiled program; calling it runs one step.

    With a JAX function behind it, arguments and results are that function's pytrees; otherwise arguments are
    global arrays by parameter and the result is a list of `shardc.Array` (the array itself if there is one).
    """

    def __init__(
        self, executable: Any, jax: Any = None, config: Config | None = None, seconds: Mapping[str, float] | None = None
    ) -> None:
        self.executable = executable
        self.config = config or job_config()
        self.seconds = dict(seconds or {})
        self._jax = jax

    @cached_property
    def driver(self) -> Any:
        """The program loaded on this job's devices; made at the first call, by all ranks together."""
        from shardc.compiler.compile import load_step
        from shardc.launcher.driver import Driver
        from shardc.launcher.job import job_transport, threads_per_process

        transport = job_transport(self.config)
        config = replace(self.config, num_threads=threads_per_process(self.config))
        return Driver(self.executable, load_step(self.executable, self.config.custom_calls), transport, config)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._jax is not None:
            return self._jax.unflatten(self.run(self._jax.flatten(args, kwargs)))
        if kwargs:
            raise InputError(
                f"arguments by name ({', '.join(kwargs)}) need a JAX function", fix="pass arguments by position"
            )
        results = self.run(args)
        return results[0] if len(results) == 1 else results

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """One step on flat arguments, one per parameter; returns one `shardc.Array` per flattened result."""
        return list(self.driver(arguments))

    @property
    def parameter_shapes(self) -> list[Shape]:
        """Global shapes by parameter."""
        return [a.global_shape for a in self.executable.arguments]

    def save(self, path: str | Path) -> None:
        """Write the executable to a file that `load_executable` reads; whole or not at all."""
        from shardc.compiler.serialize import save
        from shardc.launcher.atomic import check_writable

        check_writable(Path(path))
        save(self.executable, Path(path))


def load(path: str | Path, *args: Any, **kwargs: Any) -> Program:
    """A program from a file, told by its content: HLO text, MLIR text or bytecode, or a serialized jax Exported.

    A program with symbolic dimensions needs arguments that say what these are (only shapes and types count): the
    function's own for an Exported, one per parameter for MLIR.

    Example: ``shardc.load("step.mlir").annotate({"x": P("data")}, mesh=mesh)``.
    """
    from shardc.hlo.verify import verify
    from shardc.launcher.load import read_file, read_program

    start = time.perf_counter()
    data = read_file(path)
    module, jax, original = read_program(data, str(path), args, kwargs)
    verify(module)
    return Program(module, jax, original, seconds=_since("read", start))


def from_jax(function: Any, *args: Any, **kwargs: Any) -> Program:
    """A program from a jitted function and example arguments, or from a Traced, Lowered or jax.export.Exported.

    Arguments may be abstract (`jax.ShapeDtypeStruct`) and of meshes larger than this machine.
    Example: ``shardc.from_jax(jax.jit(step, in_shardings=...), state, batch)``.
    """
    from shardc.launcher.jax_frontend import module_from_jax

    start = time.perf_counter()
    program = module_from_jax(function, *args, **kwargs)
    return Program(program.module, program, seconds=_since("read", start))


def from_function(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any) -> Program:
    """A program from a plain JAX function, with `shardc.jit`'s options (mesh, shardings, donation)."""
    from shardc.launcher.jax_frontend import lower_function

    start = time.perf_counter()
    program = lower_function(function, args=args, kwargs=kwargs, **options)
    made = Program(program.module, program, seconds=_since("read", start))
    mesh = options.get("mesh")
    return made if mesh is None or made.mesh is not None else made.annotate(mesh=mesh)


def load_executable(path: str | Path, custom_calls: Mapping[str, CustomCall] | None = None) -> Compiled:
    """What `Compiled.save` wrote; ``custom_calls`` has the addresses of the user's own functions in it."""
    from shardc.compiler.serialize import load_executable as read

    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    return Compiled(read(Path(path)), config=replace(job_config(), custom_calls=dict(custom_calls or {})))


def trace(
    function: Any,
    /,
    *specs: Any,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: Any = (),
    **named_specs: Any,
) -> Program:
    """A program from a plain NumPy function, without JAX: the function runs once, on traced values.

    ``specs`` stand for its arguments: `ShapeDtype`, arrays, or whatever has ``shape`` and ``dtype``, Python numbers,
    and dicts, lists and tuples of those; ``named_specs`` are passed by name. Shardings are ``P`` (or pytrees of them,
    prefixes of the arguments or results); `shard` inside the function constrains a value. Without ``mesh``, axes that
    shardings name get size 1 until `Program.annotate` gives a mesh. Element types are NumPy's. Raises
    `UnsupportedError` for what cannot be traced, with the user's line and what to use instead.
    Example: ``shardc.trace(step, weights, shardc.ShapeDtype((64, 16), "float32"), mesh=Mesh({"data": 2}))``.
    """
    from shardc.launcher.numpy_frontend import program_from_numpy

    start = time.perf_counter()
    wanted = as_mesh(mesh) if mesh is not None else None
    traced = program_from_numpy(function, specs, named_specs, wanted, in_shardings, out_shardings, donate_argnums)
    return Program(traced.module, traced, seconds=_since("read", start))


def as_mesh(mesh: Any) -> Mesh:
    """Ours from ours, a mapping of axis sizes, or JAX's Mesh or AbstractMesh."""
    if isinstance(mesh, Mesh):
        return mesh
    if isinstance(mesh, Mapping):
        return Mesh({str(k): int(v) for k, v in mesh.items()})
    shape = getattr(mesh, "shape", None)
    if isinstance(shape, Mapping) and hasattr(mesh, "axis_names"):
        try:
            ids: tuple[int, ...] | None = tuple(int(d.id) for d in mesh.devices.flat)
        except (AttributeError, ValueError):  # abstract meshes have no devices
            ids = None
        if ids is not None and sorted(ids) != list(range(len(ids))):
            ids = None
        return Mesh({str(n): int(shape[n]) for n in mesh.axis_names}, ids)
    raise AnnotationError(
        f"{type(mesh).__name__} is not a mesh", fix='pass shardc.Mesh({"data": 2, "model": 4}) or a JAX mesh'
    )


def require_devices(num_devices: int, ranks: int, devices_per_rank: int) -> None:
    """Raise `EnvironmentProblem` when a job has not room for a mesh."""
    if ranks * devices_per_rank < num_devices:
        raise EnvironmentProblem(
            f"the mesh has {num_devices} devices, the job only {ranks} ranks x {devices_per_rank} devices per rank",
            fix=f"use --ranks {-(-num_devices // devices_per_rank)} or "
            f"--devices-per-rank {-(-num_devices // max(ranks, 1))}, or a smaller --mesh",
        )


def with_axes(module: Module) -> Module:
    """The module with axis-based shardings, over a mesh that is derived where the text names none."""
    from shardc.sharding.convert import with_axis_shardings

    return with_axis_shardings(module)


def _size(module: Module) -> tuple[str, int]:
    return module.source_file or module.name, module.num_partitions


class _AsGiven:
    """The provenance of a program that was given partitioned."""

    def explain(self, value: str) -> list[str]:
        return [f"{value}: the program was given partitioned, so nothing was propagated"]


def _since(stage: str, start: float) -> dict[str, float]:
    return {stage: time.perf_counter() - start}


def _explain_collective(c: Mapping[str, Any]) -> str:
    axes = "+".join(c["axes"]) or "all"
    text = f"{c['op']} %{c['name']} over {axes} ({c['group_size']} devices"
    text += f", {c['count']} times" if c["count"] != 1 else ""
    text += f"), {c['wire_bytes']} bytes on the wire per device"
    text += f"\n  at {c['source']}" if c["source"] else ""
    return text + (f"\n  because {c['reason']}" if c["reason"] else "")
