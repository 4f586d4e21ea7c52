"""A process with four of JAX's own devices: the same calls there and on ours, with the same results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec

import shardc

D = PartitionSpec("d")


def cases(log: list[str], mesh: Any) -> Mapping[str, Callable[[Any], Any]]:
    def told(f: Callable[..., Any]) -> Callable[..., Any]:
        def called(*operands: Any) -> Any:
            log.append(repr([np.array(x) for x in operands]))
            return f(*operands)

        return called

    def on_each(f: Callable[[Any], Any], **options: Any) -> Callable[[Any], Any]:
        return jax.shard_map(f, mesh=mesh, in_specs=D, out_specs=D, check_vma=False, **options)

    def like(x: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype)

    def plus(amount: int) -> Callable[[Any], Any]:
        add = told(lambda x: np.asarray(x) + np.float32(amount))
        return lambda x: io_callback(add, like(x), x)

    look = told(lambda *operands: None)

    def simple(x: Any) -> Any:
        jax.debug.callback(look, x)
        jax.debug.callback(look)
        return jax.pure_callback(told(lambda x: np.asarray(x) * 2), like(x), x)

    def meeting(x: Any) -> Any:
        def body(k: Any, z: Any) -> Any:
            jax.debug.callback(look, k * 10 + lax.axis_index("d"))
            return lax.psum(z, "d")

        return lax.fori_loop(0, 2, body, plus(1)(lax.psum(x, "m")))

    def apart(x: Any) -> Any:
        i = lax.axis_index("d")
        z = lax.fori_loop(0, i + 1, lambda k, z: plus(1)(z), x)
        return lax.psum(lax.cond(i == 1, plus(-1), lambda z: z, z), "d") + x

    def mixed(x: Any) -> Any:
        jax.debug.callback(look, x)
        y = on_each(simple)(x)
        jax.debug.callback(look, y * 3)
        return y

    def shards(x: Any) -> Any:
        jax.debug.callback(look, x, partitioned=True)
        return x

    def ordered(x: Any) -> Any:
        io_callback(look, None, x, ordered=True)
        return x

    def partly(x: Any) -> Any:
        jax.debug.callback(look, x)
        return x * 2

    return {
        "simple": on_each(simple),
        "meeting": on_each(meeting),
        "apart": on_each(apart),
        "mixed": mixed,
        "shards": shards,
        "ordered": on_each(ordered),
        "partly": on_each(partly, axis_names={"d"}),
    }


def main() -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    theirs = jax.make_mesh((2, 2), ("d", "m"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    ours = shardc.Mesh({"d": 2, "m": 2})
    for name in cases([], theirs):
        want_log: list[str] = []
        log: list[str] = []
        want = jax.jit(cases(want_log, theirs)[name], in_shardings=NamedSharding(theirs, D))(x)
        jax.effects_barrier()
        got = shardc.jit(cases(log, ours.to_jax())[name], mesh=ours, in_shardings=shardc.P("d"))(x)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
        assert log and sorted(log) == sorted(want_log), (name, log, want_log)
        print(name)


if __name__ == "__main__":
    main()
