"""shardc: partitions array programs over device meshes, compiles them, runs them on MPI ranks or virtual devices.

Names are imported when they are first used, so that ``import shardc`` is quick and loads neither MPI nor LLVM nor
JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardc.hlo.custom_calls import CustomCall as CustomCall
    from shardc.hlo.errors import ShardcError as ShardcError
    from shardc.hlo.mesh import Mesh as Mesh
    from shardc.hlo.trace.program import ShapeDtype as ShapeDtype
    from shardc.launcher.array import Array as Array
    from shardc.launcher.array import gather as gather
    from shardc.launcher.array_making import array as array
    from shardc.launcher.array_making import array_from_callback as array_from_callback
    from shardc.launcher.array_making import array_from_process_local_data as array_from_process_local_data
    from shardc.launcher.array_making import array_from_shards as array_from_shards
    from shardc.launcher.array_making import device_put as device_put
    from shardc.launcher.checkpoint.folders import latest_checkpoint as latest_checkpoint
    from shardc.launcher.checkpoint.foreign import load_safetensors as load_safetensors
    from shardc.launcher.checkpoint.load import load_checkpoint as load_checkpoint
    from shardc.launcher.checkpoint.save import save_checkpoint as save_checkpoint
    from shardc.launcher.jit import jit as jit
    from shardc.launcher.job import process_count as process_count
    from shardc.launcher.job import process_index as process_index
    from shardc.launcher.numpy_frontend import shard as shard
    from shardc.launcher.programs import from_jax as from_jax
    from shardc.launcher.programs import load as load
    from shardc.launcher.programs import load_executable as load_executable
    from shardc.launcher.programs import trace as trace
    from shardc.launcher.remote.client import connect as connect
    from shardc.launcher.reshard import reshard as reshard
    from shardc.launcher.save import save as save
    from shardc.launcher.stages import Compiled as Compiled
    from shardc.launcher.stages import Partitioned as Partitioned
    from shardc.launcher.stages import Program as Program
    from shardc.launcher.stages import Propagated as Propagated
    from shardc.launcher.sweep.run import sweep as sweep
    from shardc.sharding.spec import P as P
    from shardc.sharding.spec import PartitionSpec as PartitionSpec

_HOMES = {
    "Array": "launcher.array",
    "Compiled": "launcher.stages",
    "CustomCall": "hlo.custom_calls",
    "Mesh": "hlo.mesh",
    "P": "sharding.spec",
    "PartitionSpec": "sharding.spec",
    "Partitioned": "launcher.stages",
    "Program": "launcher.stages",
    "Propagated": "launcher.stages",
    "ShapeDtype": "hlo.trace.program",
    "ShardcError": "hlo.errors",
    "array": "launcher.array_making",
    "array_from_callback": "launcher.array_making",
    "array_from_process_local_data": "launcher.array_making",
    "array_from_shards": "launcher.array_making",
    "connect": "launcher.remote.client",
    "device_put": "launcher.array_making",
    "from_jax": "launcher.programs",
    "gather": "launcher.array",
    "jit": "launcher.jit",
    "latest_checkpoint": "launcher.checkpoint.folders",
    "load": "launcher.programs",
    "load_checkpoint": "launcher.checkpoint.load",
    "load_executable": "launcher.programs",
    "load_safetensors": "launcher.checkpoint.foreign",
    "process_count": "launcher.job",
    "process_index": "launcher.job",
    "reshard": "launcher.reshard",
    "shard": "launcher.numpy_frontend",
    "save": "launcher.save",
    "sweep": "launcher.sweep.run",
    "save_checkpoint": "launcher.checkpoint.save",
    "trace": "launcher.programs",
}

__all__ = list(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shardc' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"shardc.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
