"""Compile a StableHLO program with its options for JAX: the result is an executable and its interface.

The program is read here in this process, since it comes from jaxlib itself. Devices of a program are numbered by
their place in its device assignment; which of the client's devices these are is of no concern before it is loaded.
What the cache knows is not read: the reader is imported with the first program that is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shardc.compiler.executable import Executable
from shardc.frontends.jax.layouts import UNEVEN_RESULT
from shardc.frontends.pjrt.border import ProgramBorder, border_of, mentions_border
from shardc.frontends.pjrt.callbacks import drop_inspections, mentions_inspections, tell_shardings
from shardc.frontends.pjrt.compile_options import CompileOptions
from shardc.hlo.config import Config
from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import Instruction, Module, rebuild_computation
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, Sharding, TileSharding
from shardc.hlo.units import count_text
from shardc.launcher.driver.compiled_programs import KnownProgram
from shardc.launcher.driver.executables import ProgramCompilation, compilation_of
from shardc.partitioner.program import PartitionedProgram, SourceProgram

__all__ = ["CompiledProgram", "JaxlibProgram", "compile_jaxlib_program"]

#: Bytes as StableHLO from which a program is none of the many that JAX makes of single operations.
_SMALL = 8192


@dataclass(frozen=True)
class JaxlibProgram:
    """A program as PJRT passes it: ``code`` is a StableHLO portable artifact."""

    code: bytes
    options: CompileOptions
    config: Config

    @cached_property
    def _plain(self) -> dict[str, object]:
        from shardc.hlo.stablehlo.reader import plain_from_bytes

        return plain_from_bytes(self.code)

    @cached_property
    def border(self) -> ProgramBorder:
        """What the entry says of arguments and results besides their shapes and shardings."""
        return border_of(self._plain) if mentions_border(self.code) else ProgramBorder()

    @cached_property
    def content(self) -> str:
        """A digest of all that the module is made from."""
        options = self.options
        free = options.free_arguments, options.free_results
        parts = repr((options.num_replicas, options.num_partitions, *free, options.even_constraints))
        return hashlib.sha256(f"pjrt {parts}\n".encode() + self.code).hexdigest()

    @cached_property
    def _asking(self) -> SourceProgram:
        """The global program, ready for propagation, with the calls that ask for shardings."""
        from shardc.hlo.stablehlo.reader import module_from_plain

        module, _ = module_from_plain(self._plain, "")
        options = self.options
        if options.num_replicas > 1:
            raise UnsupportedError(
                f"the program has {options.num_replicas} replicas",
                where=module.name,
                fix="use jax.pmap of JAX 0.8 or later, or jax.shard_map: both make one program of many partitions",
            )
        _need_devices(module, options.num_partitions)
        if options.even_constraints:
            _need_even_results(module, options.free_results)
        module = fix_border(module, options)
        return SourceProgram(
            module, original=self.code, config=self.config, content=self.content, strict_interface=True
        )

    @cached_property
    def source(self) -> SourceProgram:
        """The global program, ready for propagation."""
        asking = self._asking
        return replace(asking, module=drop_inspections(asking.module)) if mentions_inspections(self.code) else asking

    def tell_shardings(self) -> None:
        """Tell those who ask for them how values are sharded: functions of the process that made the program."""
        if mentions_inspections(self.code):
            tell_shardings(self._asking.propagate().module)

    @cached_property
    def partitioned(self) -> PartitionedProgram:
        """The per-device program with its story, made again where another process, or the cache, compiled it."""
        from shardc.compiler.lower.judge_by_lowering import judge_to_compile

        return self.source.partition(judge=judge_to_compile(self.config))

    def compilation(self) -> ProgramCompilation:
        """What compiles it, unless the cache knows it."""
        return compilation_of(self.content, self.config, lambda: self.source)


@dataclass(frozen=True)
class CompiledProgram:
    """``program`` and what it was compiled to."""

    program: JaxlibProgram
    executable: Executable

    @property
    def border(self) -> ProgramBorder:
        return self.program.border

    @property
    def fingerprint(self) -> str:
        """The same for equal programs only."""
        return self.program.content

    @property
    def known(self) -> KnownProgram:
        """What is kept of the program for those who ask for it later."""
        program, small = self.program, len(self.program.code) < _SMALL
        return KnownProgram(self.executable, program.config, lambda: program.source, self.fingerprint, small)


def compile_jaxlib_program(
    code: bytes,
    options: CompileOptions,
    config: Config,
    build: Callable[[ProgramCompilation], Executable] = lambda compilation: compilation.build(None)[0],
) -> CompiledProgram:
    """``code`` compiled for ``options``; ``build`` may share the work with other processes.

    Raises what the reader, propagation, the partitioner and the compiler raise, and `UnsupportedError` for replicas
    and for layouts that are not row by row.
    """
    program = JaxlibProgram(code, options, config)
    program.border.check()
    return CompiledProgram(program, build(program.compilation()))


def fix_border(module: Module, options: CompileOptions) -> Module:
    """``module`` with a sharding on all arguments and results that propagation must not decide about: those without
    one are the same on all devices."""
    if options.num_partitions == 1:
        return module
    if module.mesh is None and not any(isinstance(i.sharding, TileSharding) for i in module.entry):
        module = module.with_(mesh=Mesh({"device": options.num_partitions}), num_partitions=options.num_partitions)
    mesh = module.mesh
    if mesh is None:
        return module
    root = module.entry.root
    results = root.sharding if isinstance(root.sharding, tuple) else (None,) * len(root.operands)
    fixed = tuple(
        _fixed(s, free, mesh, o.shape.rank)
        for s, free, o in zip(results, _per_array(options.free_results, len(results)), root.operands, strict=True)
    )
    free_arguments = _per_array(options.free_arguments, len(module.parameters))

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old is root:
            return old.replace(operands=operands, sharding=fixed if any(fixed) else None)
        if old.opcode != "parameter":
            return None
        sharding = _fixed(old.sharding, free_arguments[old.attrs["index"]], mesh, old.shape.rank)
        return None if sharding is old.sharding else old.replace(sharding=sharding)

    entry = rebuild_computation(module.entry, change)
    return module.with_(computations=(*module.computations[:-1], entry), entry=entry)


def _need_devices(module: Module, number: int) -> None:
    """Raise where the program shards values over a mesh of another ``number`` of devices than it is compiled for: JAX
    takes a mesh without devices of any size, and fails with what it gets back."""
    if module.mesh is not None and module.mesh.size != number:
        raise AnnotationError(
            f"the function shards values over {module.mesh}, but is compiled for {count_text(number, 'device')}",
            where=module.name,
            fix=f"call it with a mesh or arguments of {count_text(module.mesh.size, 'device')}, or shard over the mesh "
            "that it is called with",
        )


def _need_even_results(module: Module, free: Sequence[bool]) -> None:
    """Raise for a free result to which a constraint gives parts of unequal sizes, which JAX's arrays do not have."""
    root = module.entry.root
    names = module.result_names or ("",) * len(root.operands)
    for made, is_free, name in zip(root.operands, _per_array(free, len(root.operands)), names, strict=True):
        sharding = _constraint_on(made) if is_free else None
        if sharding is not None and any(n % k for n, k in zip(made.shape.dims, sharding.num_shards(), strict=True)):
            raise UnsupportedError(f"{UNEVEN_RESULT}: {made.shape} as {sharding}", where=name or module.name)


def _constraint_on(value: Instruction) -> Sharding | None:
    """The constraint that makes ``value``, in a function that it calls or here; those that leave all open count not."""
    called = value.operands[0] if value.opcode == "get-tuple-element" else value
    if called.opcode == "call":
        root = called.attrs["to_apply"].root
        if called is value:
            return _constraint_on(root)
        return _constraint_on(root.operands[value.attrs["index"]]) if root.opcode == "tuple" else None
    if not is_constraint(value) or not isinstance(value.sharding, Sharding):
        return None
    is_open = not any(d.closed or d.axes for d in value.sharding.dims)
    return _constraint_on(value.operands[0]) if is_open else value.sharding


def _fixed(sharding: AnySharding, free: bool, mesh: Mesh, rank: int) -> Sharding | TileSharding | None:
    assert not isinstance(sharding, tuple)
    return sharding if free or sharding is not None else Sharding.replicate(mesh, rank)


def _per_array(given: Sequence[bool], count: int) -> Sequence[bool]:
    """One flag counts for all arrays; none means that nothing is free."""
    return given if len(given) == count else (bool(given) and all(given),) * count
