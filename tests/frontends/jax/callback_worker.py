"""A rank of a job whose steps call Python: which rank calls, with what, and how a call that fails ends the job."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.sharding import PartitionSpec as Spec

import shardc
from shardc import Mesh, P

MESH = Mesh({"d": 4})
X = np.arange(8, dtype=np.float32)


def step(log: list[Any]) -> Any:
    def seen(word: str) -> Any:
        return lambda *operands: log.append((word, *(np.asarray(o).tolist() for o in operands)))

    def counted(x: Any) -> Any:
        seen("whole")(x)
        return np.float32(len(log))

    def local(x: Any) -> Any:
        jax.debug.callback(seen("local"), x)
        i = lax.axis_index("d")

        def body(k: Any, y: Any) -> Any:
            return y + io_callback(lambda y: np.asarray(y) * 0 + 1, jax.ShapeDtypeStruct(y.shape, y.dtype), y)

        return lax.psum(lax.fori_loop(0, i + 1, body, jnp.float32(0)), "d") + x

    def f(x: Any) -> Any:
        n = io_callback(counted, jax.ShapeDtypeStruct((), np.float32), x, ordered=True)
        y = jax.shard_map(local, mesh=MESH.to_jax(), in_specs=Spec("d"), out_specs=Spec("d"))(x)
        jax.debug.callback(seen("end"), y.sum(), ordered=True)
        return y, n

    return shardc.jit(f, mesh=MESH, in_shardings=P("d"))


def fail() -> Any:
    """The device of rank 1 raises, or (``--first``) the first, while the others wait for its results."""

    def bad(x: Any) -> Any:
        if np.asarray(x).sum() > 5:
            raise ValueError("too large for me")
        return x

    def local(x: Any) -> Any:
        y = io_callback(bad, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return lax.psum(y, "d")

    def everywhere(x: Any) -> Any:
        return jax.shard_map(local, mesh=MESH.to_jax(), in_specs=Spec("d"), out_specs=Spec())(x)

    def first(x: Any) -> Any:
        return io_callback(bad, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return shardc.jit(first if "--first" in sys.argv else everywhere, mesh=MESH, in_shardings=P("d"))


def main() -> None:
    rank = shardc.process_index()
    if "--fail" in sys.argv:
        for x in (X * 0, X):
            shardc.gather(fail()(x))
        raise AssertionError("nothing was raised")
    log: list[Any] = []
    run = step(log)
    for k in (0, 1):
        y, n = run(X + k)
        np.testing.assert_array_equal(shardc.gather(y), X + k + 10)
        assert shardc.gather(n) == (1 if k == 0 else 1 + 1 + 2 + 1), shardc.gather(n)
    mine = range(rank * 2, rank * 2 + 2)
    want: list[Any] = []
    for k in (0, 1):
        want += [("whole", (X + k).tolist())] if rank == 0 else []
        want += [("local", (X + k)[2 * d : 2 * d + 2].tolist()) for d in mine]
        want += [("end", float((X + k + 10).sum()))] if rank == 0 else []
    assert log == want, (rank, log, want)
    sys.stdout.write(f"done {rank}\n")


main()
