"""shardc: partitions array programs over device meshes, compiles them, runs them on MPI ranks or virtual devices.

Names are imported when they are first used: ``import shardc`` loads neither MPI nor LLVM nor JAX.

Examples in docstrings continue these lines. ``shardc demo --write .`` writes ``step.mlir``, a training step of a
network of two layers for four devices:

>>> import numpy as np
>>> import shardc
>>> from shardc import Mesh, P
>>> mesh = Mesh({"data": 2, "model": 2})
>>> program = shardc.load("step.mlir")
>>> propagated = program.propagate()
>>> partitioned = propagated.partition()
>>> compiled = partitioned.compile()
>>> arguments = [np.ones(shape.dims, np.float32) for shape in compiled.parameter_shapes]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardc.hlo.version import VERSION

if TYPE_CHECKING:
    from shardc.analysis.auto.auto import auto as auto
    from shardc.analysis.sweep.run import sweep as sweep
    from shardc.frontends.numpy_functions import shard as shard
    from shardc.hlo.errors import ShardcError as ShardcError
    from shardc.hlo.ir.custom_calls import CustomCall as CustomCall
    from shardc.hlo.ir.mesh import Mesh as Mesh
    from shardc.hlo.numpy.loops import cond as cond
    from shardc.hlo.numpy.loops import fori_loop as fori_loop
    from shardc.hlo.numpy.loops import scan as scan
    from shardc.hlo.numpy.loops import while_loop as while_loop
    from shardc.hlo.numpy.trace import ShapeDtype as ShapeDtype
    from shardc.launcher.arrays.array import Array as Array
    from shardc.launcher.arrays.gather import gather as gather
    from shardc.launcher.arrays.make_arrays import array as array
    from shardc.launcher.arrays.make_arrays import array_from_callback as array_from_callback
    from shardc.launcher.arrays.make_arrays import array_from_process_local_data as array_from_process_local_data
    from shardc.launcher.arrays.make_arrays import array_from_shards as array_from_shards
    from shardc.launcher.arrays.make_arrays import device_put as device_put
    from shardc.launcher.arrays.reshard import reshard as reshard
    from shardc.launcher.checkpoint.asynchronous import AsyncCheckpointer as AsyncCheckpointer
    from shardc.launcher.checkpoint.folders import latest_checkpoint as latest_checkpoint
    from shardc.launcher.checkpoint.foreign import load_safetensors as load_safetensors
    from shardc.launcher.checkpoint.load import load_checkpoint as load_checkpoint
    from shardc.launcher.checkpoint.save import save_checkpoint as save_checkpoint
    from shardc.launcher.jobs.job import process_count as process_count
    from shardc.launcher.jobs.job import process_index as process_index
    from shardc.service.client.client import connect as connect
    from shardc.sharding.notations.partition_spec import P as P
    from shardc.sharding.notations.partition_spec import PartitionSpec as PartitionSpec
    from shardc.stages.jit import jit as jit
    from shardc.stages.last_compiled import last_compiled as last_compiled
    from shardc.stages.programs import from_jax as from_jax
    from shardc.stages.programs import from_tensorflow as from_tensorflow
    from shardc.stages.programs import from_torch as from_torch
    from shardc.stages.programs import load as load
    from shardc.stages.programs import load_executable as load_executable
    from shardc.stages.programs import trace as trace
    from shardc.stages.save import save as save
    from shardc.stages.stages import Compiled as Compiled
    from shardc.stages.stages import Partitioned as Partitioned
    from shardc.stages.stages import Program as Program
    from shardc.stages.stages import Propagated as Propagated

_MODULES = {
    "Array": "launcher.arrays.array",
    "AsyncCheckpointer": "launcher.checkpoint.asynchronous",
    "Compiled": "stages.stages",
    "CustomCall": "hlo.ir.custom_calls",
    "Mesh": "hlo.ir.mesh",
    "P": "sharding.notations.partition_spec",
    "PartitionSpec": "sharding.notations.partition_spec",
    "Partitioned": "stages.stages",
    "Program": "stages.stages",
    "Propagated": "stages.stages",
    "ShapeDtype": "hlo.numpy.trace",
    "ShardcError": "hlo.errors",
    "auto": "analysis.auto.auto",
    "array": "launcher.arrays.make_arrays",
    "array_from_callback": "launcher.arrays.make_arrays",
    "array_from_process_local_data": "launcher.arrays.make_arrays",
    "array_from_shards": "launcher.arrays.make_arrays",
    "cond": "hlo.numpy.loops",
    "connect": "service.client.client",
    "device_put": "launcher.arrays.make_arrays",
    "fori_loop": "hlo.numpy.loops",
    "from_jax": "stages.programs",
    "from_tensorflow": "stages.programs",
    "from_torch": "stages.programs",
    "gather": "launcher.arrays.gather",
    "jit": "stages.jit",
    "last_compiled": "stages.last_compiled",
    "latest_checkpoint": "launcher.checkpoint.folders",
    "load": "stages.programs",
    "load_checkpoint": "launcher.checkpoint.load",
    "load_executable": "stages.programs",
    "load_safetensors": "launcher.checkpoint.foreign",
    "process_count": "launcher.jobs.job",
    "process_index": "launcher.jobs.job",
    "reshard": "launcher.arrays.reshard",
    "scan": "hlo.numpy.loops",
    "shard": "frontends.numpy_functions",
    "save": "stages.save",
    "sweep": "analysis.sweep.run",
    "save_checkpoint": "launcher.checkpoint.save",
    "trace": "stages.programs",
    "while_loop": "hlo.numpy.loops",
}

__all__ = list(_MODULES)
__version__ = VERSION


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("numpy", "torch"):
        return import_module(f"shardc.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'shardc' has no attribute {name!r}")
    value = getattr(import_module(f"shardc.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
