"""Child process: XLA compiles a partitioned HLO text and runs it on forced host devices.

Usage: ``python xla_runner.py PROGRAM.hlo ARGUMENTS.npz RESULTS.npz``. Arguments and results are ``d<device>_<index>``.
The environment sets ``XLA_FLAGS=--xla_force_host_platform_device_count=N``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def main(program: str, arguments: str, results: str) -> None:
    import jax
    from jax._src.interpreters import mlir as jax_mlir
    from jaxlib import _hlo, xla_client
    from jaxlib.mlir import ir

    module = _hlo.hlo_module_from_text(Path(program).read_text())
    computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
    text = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    count = len(jax.devices())
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 1, count
    build.use_spmd_partitioning = True
    build.device_assignment = xla_client.DeviceAssignment.create(np.arange(count).reshape(1, count))
    backend = jax.devices()[0].client
    devices = xla_client.DeviceList(tuple(jax.devices()))
    with jax_mlir.make_ir_context():
        executable = backend.compile_and_load(ir.Module.parse(text), devices, options)
    with np.load(arguments) as given:
        columns = []
        index = 0
        while f"d0_{index}" in given:
            shards = [jax.device_put(given[f"d{d}_{index}"], jax.devices()[d]) for d in range(count)]
            columns.append(shards)
            index += 1
    out = run(executable, columns)
    np.savez(results, **{f"d{d}_{i}": np.asarray(a) for i, shards in enumerate(out) for d, a in enumerate(shards)})


def run(executable: object, columns: list[list[object]]) -> list[list[object]]:
    """Per result, the arrays of all devices; to jaxlib every array looks replicated, which nothing checks."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec())
    arrays = [jax.make_array_from_single_device_arrays(s[0].shape, sharding, s) for s in columns]  # type: ignore[attr-defined]
    return executable.execute_sharded(arrays).disassemble_into_single_device_arrays()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(*sys.argv[1:])
