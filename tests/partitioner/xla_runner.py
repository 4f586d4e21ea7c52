"""Child process: XLA compiles partitioned HLO texts and runs them on forced host devices.

Usage: ``python xla_runner.py FOLDER``. For every ``NAME.hlo`` there, arguments ``d<device>_<index>`` come from
``NAME.npz`` (whose ``devices`` says on how many devices it runs); results go to ``NAME.out.npz`` in the same form,
an error to ``NAME.err``. The environment sets ``XLA_FLAGS=--xla_force_host_platform_device_count=8``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _hlo, xla_client
from jaxlib.mlir import ir


def compiled(text: str, devices: list[Any]) -> Any:
    """XLA's executable for a partitioned program."""
    module = _hlo.hlo_module_from_text(text)
    computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
    stablehlo = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 1, len(devices)
    build.use_spmd_partitioning = True
    order = np.array([d.id for d in devices]).reshape(1, -1)
    build.device_assignment = xla_client.DeviceAssignment.create(order)
    with jax_mlir.make_ir_context():
        return devices[0].client.compile_and_load(
            ir.Module.parse(stablehlo), xla_client.DeviceList(tuple(devices)), options
        )


def run(text: str, given: Any) -> dict[str, Any]:
    """Results of all devices; to jaxlib every array looks replicated, which nothing checks."""
    devices = jax.devices()[: int(given["devices"])]
    executable = compiled(text, devices)
    sharding = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec())
    arrays = []
    while f"d0_{len(arrays)}" in given:
        shards = [jax.device_put(given[f"d{k}_{len(arrays)}"], d) for k, d in enumerate(devices)]
        arrays.append(jax.make_array_from_single_device_arrays(shards[0].shape, sharding, shards))
    results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
    return {f"d{k}_{i}": np.asarray(a) for i, shards in enumerate(results) for k, a in enumerate(shards)}


def main(folder: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    jax.jit(jax.numpy.linalg.cholesky).lower(np.eye(2))  # jaxlib finds LAPACK at the first lowering that needs it
    for program in sorted(folder.glob("*.hlo")):
        try:
            with np.load(program.with_suffix(".npz")) as given:
                np.savez(program.with_suffix(".out.npz"), **run(program.read_text(), given))
        except Exception as error:
            program.with_suffix(".err").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
