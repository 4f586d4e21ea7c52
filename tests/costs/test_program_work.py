"""The work of whole programs, beside XLA's own count of the same text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from shardc.compiler.lower.pipeline import lower
from shardc.costs.kernels.program_work import program_work
from shardc.frontends.jax.frontend import module_from_jax

_A, _B = np.ones((8, 16), np.float32), np.ones((16, 4), np.float32)


def test_a_product_and_a_function_of_it() -> None:
    function = jax.jit(lambda a, b: jnp.tanh(a @ b))
    work = program_work(module_from_jax(function, _A, _B).module)
    xla = function.lower(_A, _B).compile().cost_analysis()
    assert work.transcendentals == xla["transcendentals"] == 32
    assert work.flops == xla["flops"] + xla["transcendentals"] == 2 * 8 * 16 * 4 + 32


def test_fused_kernels_move_less() -> None:
    module = module_from_jax(jax.jit(lambda a: jnp.exp(a) * 2 + 1), _A).module
    alone, fused = program_work(module), program_work(lower(module).module)
    assert (fused.flops, fused.transcendentals) == (alone.flops, alone.transcendentals) == (3 * 128, 128)
    assert fused.bytes_read == fused.bytes_written == 128 * 4 < alone.bytes_read


def test_loops_count_as_often_as_they_run() -> None:
    def loop(a: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda _, x: jnp.sort(jnp.sin(x)), a)

    assert program_work(module_from_jax(jax.jit(loop), _A).module).transcendentals == 5 * 128
