"""`ArrayOperation`: a call of NumPy on sharded arrays as a compiled program, kept for calls like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from shardc.collectives.call.transport import Transport
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.numpy.trace import ShapeDtype
from shardc.hlo.numpy.trace_call import Number, TracedCall, trace_call
from shardc.launcher.arrays.assemble import assemble
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.pieces import Whole
from shardc.launcher.arrays.placement import layout_of
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.driver.driver import Driver
from shardc.launcher.driver.executables import compilation_of_partitioned, share_executable
from shardc.launcher.jobs.job import local_transport, threads_per_process
from shardc.launcher.jobs.job_config import job_config
from shardc.launcher.operations.encoding import Encoded, decode
from shardc.launcher.operations.lay_out import lay_out
from shardc.partitioner.program import SourceProgram

__all__ = ["ArrayOperation", "find_operation"]

#: Operations that are kept, the ones used last.
_KEPT = 512
#: Programs that work in more memory than so many bytes give it up after each use.
_MEMORY = 1 << 25


@dataclass(frozen=True, slots=True)
class LeafKind:
    """What a program knows of an argument: shape, element type, and how an array lies."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: Sharding | None = None


class ArrayOperation:
    """A traced call, and its program where one has to run.

    An ``alone`` operation of a job takes values that are whole everywhere. Each process computes it for itself: what
    one process does with such values (``if shardc.process_index() == 0: print(loss[0])``) does not wait for others.
    """

    def __init__(
        self,
        traced: TracedCall,
        transport: Transport,
        array_type: type[ShardedArray],
        *,
        alone: bool = False,
        placed: Sharding | None = None,
    ) -> None:
        self.traced, self._placed = traced, placed
        self._transport, self._array_type, self._alone = transport, array_type, alone
        self._driver: Driver | None = None
        self._made: Any = None

    def __call__(self, leaves: Sequence[Any]) -> list[ShardedArray]:
        """One run on the leaves of the call's arguments: the module's results."""
        if not self._alone:
            return self._run(leaves)
        arrays = [x for x in leaves if isinstance(x, ShardedArray)]
        assert self.traced.module is not None
        layouts = [self._whole_layout(arrays, shape) for shape in self.traced.module.results]
        if all(x.local_devices for x in arrays):
            found = self._run([np.asarray(x) if isinstance(x, ShardedArray) else x for x in leaves])
            values = [np.asarray(x) for x in found]
        else:  # This process is beside the arrays' mesh.
            values = [np.empty(layout.dims, layout.dtype.numpy) for layout in layouts]
        return [
            assemble(self._array_type, layout, Whole(value), self._transport)
            for layout, value in zip(layouts, values, strict=True)
        ]

    def _whole_layout(self, arrays: Sequence[ShardedArray], shape: Shape) -> ArrayLayout:
        """The layout of a result that is whole on all devices of the arguments, or of the mesh where it is placed."""
        given = arrays[0].sharding if arrays else self._placed
        sharding = given and Sharding(given.mesh, (DimSharding(),) * shape.rank)
        if not arrays:
            return layout_of(shape.dims, shape.dtype, sharding)
        like = arrays[0]._layout
        return replace(like, name="", dims=shape.dims, local_dims=shape.dims, dtype=shape.dtype, sharding=sharding)

    def _run(self, leaves: Sequence[Any]) -> list[ShardedArray]:
        driver = self._driver or self._load()
        found = driver(leaves)
        executable = driver.executable
        results = sum(r._layout.local_bytes for r in found)
        self._driver = driver if executable.arena_bytes + results <= _MEMORY else None
        return found

    def _load(self) -> Driver:
        """The program on this job's devices; in a job all processes come here together, unless it is ``alone``."""
        config = job_config()
        transport = local_transport(config) if self._alone else self._transport
        if self._made is None:
            self._made = _compiled(self.traced.module, config, transport)
        executable, step = self._made
        config = replace(config, num_threads=threads_per_process(config))
        return Driver(executable, step, transport, config, step.pool, array_type=self._array_type)


def _compiled(module: Module | None, config: Config, transport: Transport) -> tuple[Any, Any]:
    from shardc.compiler.load.step import load_step

    assert module is not None
    program = SourceProgram(module, config=config)
    # What arrays lie like is decided: there is nothing to plan in one operation.
    partitioned = program.propagate().partition(plan="propagated")
    compilation = compilation_of_partitioned(partitioned)
    built = share_executable(compilation, transport) if transport.process_count > 1 else compilation.build(None)
    return built[0], load_step(built[0], config.custom_calls, config)


@lru_cache(maxsize=_KEPT)
def find_operation(
    function: Any,
    encoded: Encoded,
    kinds: tuple[LeafKind | Number, ...],
    transport: Transport,
    array_type: type[ShardedArray],
    placed: Sharding | None = None,
) -> ArrayOperation:
    """The operation of ``function`` on arguments like these, with results that lie as ``placed`` says, if it does.
    Raises what NumPy raises for the arguments."""
    leaves = [k if isinstance(k, Number) else ShapeDtype(k.shape, k.dtype) for k in kinds]
    name = "".join(c if c.isalnum() or c == "_" else "_" for c in getattr(function, "__name__", "operation"))
    traced = trace_call(name, lambda tracers, views: decode(function, encoded, tracers, views), leaves)
    given = [k.sharding if isinstance(k, LeafKind) else None for k in kinds]
    alone = transport.process_count > 1 and all(s is None or s.is_replicated for s in (*given, placed))
    if traced.module is not None and not alone:
        traced = replace(traced, module=lay_out(traced, given, placed))
    return ArrayOperation(traced, transport, array_type, alone=alone, placed=placed)
