"""How long XLA takes from the lowered training step to its executable, partitioning included; prints seconds.

python benchmarks/xla_compile.py LAYERS

Started by ``compiler_speed.py``, in a process of its own with XLA_FLAGS=--xla_force_host_platform_device_count set.
"""

from __future__ import annotations

import sys
import time

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from programs import transformer

from shardc.sharding.notations.partition_spec import P

MESH = {"data": 2, "model": 4}


def main() -> None:
    case = transformer(layers=int(sys.argv[1]), batch=4096 * 4)
    mesh = Mesh(jax.make_mesh(tuple(MESH.values()), tuple(MESH)).devices, tuple(MESH))

    def place(specs: object) -> object:
        return jax.tree.map(
            lambda s: NamedSharding(mesh, PartitionSpec(*s.entries)), specs, is_leaf=lambda x: isinstance(x, P)
        )

    jitted = jax.jit(case.function, in_shardings=place(case.in_specs), out_shardings=place(case.out_specs))
    with jax.set_mesh(mesh):
        lowered = jitted.trace(*case.arguments).lower()
        start = time.perf_counter()
        lowered.compile()
    print(time.perf_counter() - start)


main()
