"""What users of other compilers ask for in public threads: one short JAX program for each question.

Each function takes `Places` over a mesh of 8 devices and gives a jitted function and its arguments. The same code
runs on XLA's devices and on those of shardc, so what differs is the compiler alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

__all__ = ["THREADS", "Places", "Thread"]

Made = tuple[Any, tuple[Any, ...]]


class Places:
    """Shorthands for a mesh: ``at("x")`` is a sharding, ``at.array(shape, "x")`` a seeded float32 array.

    ``at.jit`` is `jax.jit`, or `shardc.jit` where the devices are shardc's.
    """

    def __init__(self, axes: Mapping[str, int], jit: Callable[..., Any] = jax.jit) -> None:
        self.jit = jit
        devices = np.array(jax.devices()[: int(np.prod(list(axes.values())))])
        self.mesh = Mesh(devices.reshape(tuple(axes.values())), tuple(axes))

    def __call__(self, *spec: Any) -> NamedSharding:
        return NamedSharding(self.mesh, P(*spec))

    def array(self, shape: tuple[int, ...], *spec: Any) -> Any:
        values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        return jax.device_put(values, self(*spec))


@dataclass(frozen=True)
class Thread:
    """A question: its threads as ``owner/name#number``, what is asked, the mesh, and the program that shows it.

    ``note`` says what the count of bytes sent does not know.
    """

    name: str
    threads: tuple[str, ...]
    asked: str
    mesh: Mapping[str, int]
    make: Callable[[Places], Made]
    note: str = ""


def reshard(at: Places) -> Made:
    def step(a: Any, b: Any, c: Any) -> Any:
        return c + lax.with_sharding_constraint(a + b, at(None, ("x", "y"), None))

    cube = (64, 64, 64)
    return jax.jit(step), (at.array(cube, "y", None, "x"), at.array(cube, "y", None, "x"), at.array(cube, None, "x"))


def batch_fft(at: Places) -> Made:
    step = jax.jit(lambda a: jnp.fft.fft(a, n=4096, axis=1), out_shardings=at("x"))
    return step, (at.array((1000, 1000), "x"),)


def pencil_fft(at: Places) -> Made:
    step = jax.jit(jnp.fft.fftn, out_shardings=at("x", "y"))
    return step, (at.array((64, 64, 64), "x", "y"),)


def grouped_convolution(at: Places) -> Made:
    def step(x: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", feature_group_count=4)

    return jax.jit(step, out_shardings=at("x")), (at.array((64, 32, 16, 16), "x"), at.array((32, 8, 3, 3)))


def set_rows(at: Places) -> Made:
    step = jax.jit(lambda x, rows: x.at[0:3].set(rows), out_shardings=at("x"))
    return step, (at.array((1024, 256), "x"), at.array((3, 256)))


def running_sum(at: Places) -> Made:
    step = jax.jit(lambda mask: jnp.cumsum(mask, axis=-1), out_shardings=at("x", "y"))
    return step, (at.array((8, 65536), "x", "y"),)


def uneven_running_sum(at: Places) -> Made:
    step = at.jit(jnp.cumsum, in_shardings=at("x"), out_shardings=at("x"))
    return step, (np.arange(65537, dtype=np.float32),)


def ragged_exchange(at: Places) -> Made:
    def send(rows: Any, out: Any) -> Any:
        me, ones = lax.axis_index("x"), jnp.ones(8, jnp.int32)
        starts = jnp.arange(8, dtype=jnp.int32)
        return lax.ragged_all_to_all(rows, out, starts, ones, me * ones, ones, axis_name="x")

    step = jax.shard_map(send, mesh=at.mesh, in_specs=(P("x"), P("x")), out_specs=P("x"), check_vma=False)
    return jax.jit(step), (at.array((8 * 4096, 64), "x"), at.array((8 * 4096, 64), "x"))


def sorted_by_itself(at: Places) -> Made:
    step = jax.jit(lambda x: x[jnp.argsort(x)], out_shardings=at("x"))
    return step, (at.array((1 << 20,), "x"),)


def gradient_of_roll(at: Places) -> Made:
    def loss(x: Any) -> Any:
        return (jnp.roll(x, 3) * jnp.concatenate([x[1:], x[:1]])).sum()

    return jax.jit(jax.grad(loss), out_shardings=at("x")), (at.array((1 << 20,), "x"),)


def gradient_of_scatter(at: Places) -> Made:
    def loss(table: Any, rows: Any) -> Any:
        return (table.at[7].add(rows.sum(0)) ** 2).sum()

    return jax.jit(jax.grad(loss), out_shardings=at("x")), (at.array((4096, 64), "x"), at.array((512, 64), "x"))


def accumulated_gradients(at: Places) -> Made:
    def step(w: Any, batches: Any) -> Any:
        def add(total: Any, batch: Any) -> tuple[Any, None]:
            return total + jax.grad(lambda w: (jnp.tanh(batch @ w) ** 2).mean())(w), None

        return w - lax.scan(add, jnp.zeros_like(w), batches)[0]

    return jax.jit(step, out_shardings=at()), (at.array((256, 256)), at.array((8, 512, 256), None, "x"))


def donated_through_shard_map(at: Places) -> Made:
    step = jax.shard_map(lambda state: state * 0.5, mesh=at.mesh, in_specs=P("x"), out_specs=P("x"))
    return jax.jit(step, donate_argnums=0), (at.array((1 << 20,), "x"),)


def random_numbers(at: Places) -> Made:
    step = jax.jit(lambda seed: jax.random.normal(jax.random.key(seed), (1024, 1024)), out_shardings=at("x", "y"))
    return step, (np.uint32(7),)


def shuffled_rows(at: Places) -> Made:
    def step(keys: Any, rows: Any) -> Any:
        return jax.vmap(jax.random.permutation)(keys, rows)

    keys = jax.device_put(jax.random.split(jax.random.PRNGKey(0), 24), at())
    return jax.jit(step, out_shardings=at("x")), (keys, at.array((24, 4096, 16), "x"))


def tall_qr(at: Places) -> Made:
    step = jax.jit(lambda a: jnp.linalg.qr(a)[1], out_shardings=at())
    return step, (at.array((4096, 32), "x"),)


def tall_svd(at: Places) -> Made:
    step = jax.jit(lambda a: jnp.linalg.svd(a, full_matrices=False)[1], out_shardings=at())
    return step, (at.array((65536, 64), "x"),)


def split_solve(at: Places) -> Made:
    step = jax.jit(lambda a, b: jnp.linalg.solve(a + 64 * jnp.eye(512), b), out_shardings=at("x"))
    return step, (at.array((512, 512), "x"), at.array((512, 8), "x"))


def split_cholesky(at: Places) -> Made:
    def step(a: Any) -> Any:
        return jnp.linalg.cholesky(a @ a.T + 512 * jnp.eye(512))

    return jax.jit(step, out_shardings=at("x")), (at.array((512, 512), "x"),)


LINE, GRID = {"x": 8}, {"x": 2, "y": 4}

THREADS = (
    Thread(
        "reshard",
        ("openxla/xla#15207", "jax-ml/jax#21562"),
        "move a cube from one layout to another without gathering it whole",
        {"x": 4, "y": 2},
        reshard,
    ),
    Thread(
        "batch_fft",
        ("jax-ml/jax#15680",),
        "a Fourier transform along a dimension that is not split",
        LINE,
        batch_fft,
    ),
    Thread(
        "pencil_fft",
        ("DifferentiableUniverseInitiative/JaxPM#8",),
        "a transform of three dimensions, of which two are split",
        GRID,
        pencil_fft,
    ),
    Thread(
        "grouped_convolution",
        ("openxla/xla#47945",),
        "a convolution in groups, with a split batch",
        LINE,
        grouped_convolution,
    ),
    Thread("set_rows", ("jax-ml/jax#23052",), "write three rows of a split array", LINE, set_rows),
    Thread("running_sum", ("jax-ml/jax#21403",), "a running sum along a split dimension", GRID, running_sum),
    Thread("sorted_by_itself", ("jax-ml/jax#35650",), "sort an array by its own order", LINE, sorted_by_itself),
    Thread(
        "shuffled_rows", ("jax-ml/jax#20381",), "shuffle each part of a split batch for itself", LINE, shuffled_rows
    ),
    Thread(
        "uneven_running_sum",
        ("jax-ml/jax#26946", "jax-ml/jax#27808", "jax-ml/jax#15788"),
        "keep an array of 65,537 elements split over 8 devices",
        LINE,
        uneven_running_sum,
    ),
    Thread(
        "ragged_exchange",
        ("jax-ml/jax#34755", "AI-Hypercomputer/maxtext#1712"),
        "send the rows that sizes ask for, and no more",
        LINE,
        ragged_exchange,
        "at most: sizes are values. In this call, 7 rows of 256 B",
    ),
    Thread("gradient_of_roll", (), "the gradient of rolls and concatenations", LINE, gradient_of_roll),
    Thread("gradient_of_scatter", (), "the gradient of a scatter", LINE, gradient_of_scatter),
    Thread(
        "accumulated_gradients",
        ("pytorch/torchtitan#292",),
        "add up the gradients of eight batches, and reduce them once",
        LINE,
        accumulated_gradients,
    ),
    Thread(
        "donated_through_shard_map",
        (),
        "reuse the memory of a donated argument in `shard_map`",
        LINE,
        donated_through_shard_map,
    ),
    Thread(
        "random_numbers",
        ("jax-ml/jax#21232",),
        "random numbers that do not depend on the mesh",
        GRID,
        random_numbers,
    ),
    Thread("tall_qr", ("jax-ml/jax#13087",), "the QR factorisation of a tall matrix", LINE, tall_qr),
    Thread("tall_svd", ("jax-ml/jax#13087",), "the singular values of a tall matrix", LINE, tall_svd),
    Thread("split_solve", ("jax-ml/jax#24309",), "solve a system whose matrix is split", LINE, split_solve),
    Thread(
        "split_cholesky",
        ("jax-ml/jax#16597", "jax-ml/jax#24309"),
        "the Cholesky factor of a split matrix",
        LINE,
        split_cholesky,
    ),
)
