"""The other side: XLA on forced host devices, in a process of its own.

Reads lines from standard input: a case name compiles it, a number runs so many steps. Answers with one line of
JSON each. Started by ``training_steps.py`` with XLA_FLAGS=--xla_force_host_platform_device_count set.
"""

from __future__ import annotations

import json
import sys
import time

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from programs import CASES

from shardc.sharding.spec import P


def main() -> None:
    state = step = rest = None
    for line in sys.stdin:
        word = line.strip()
        if word in CASES:
            case = CASES[word]()
            shape = case.mesh.shape
            mesh = Mesh(jax.make_mesh(tuple(shape.values()), tuple(shape)).devices, tuple(shape))

            def place(specs: object, mesh: Mesh = mesh) -> object:
                leaf = lambda x: isinstance(x, P)  # noqa: E731
                return jax.tree.map(lambda s: NamedSharding(mesh, PartitionSpec(*s)), specs, is_leaf=leaf)

            inputs, outputs = place(case.in_specs), place(case.out_specs)
            jitted = jax.jit(case.function, in_shardings=inputs, out_shardings=outputs)
            start = time.perf_counter()
            with jax.set_mesh(mesh):
                step = jitted.trace(*case.arguments).lower().compile()
            seconds = time.perf_counter() - start
            state, *rest = jax.device_put(case.arguments, inputs)
            print(json.dumps({"compile": seconds}), flush=True)
        else:
            start = time.perf_counter()
            for _ in range(int(word)):
                state, loss = step(state, *rest)
            jax.block_until_ready(loss)
            print(json.dumps({"step": (time.perf_counter() - start) / int(word), "loss": float(loss)}), flush=True)


main()
