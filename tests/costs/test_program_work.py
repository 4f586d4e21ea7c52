"""The work of whole programs, beside XLA's own count of the same text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc.compiler.lower.pipeline import lower
from shardc.costs.kernels.program_work import program_work
from shardc.frontends.jax.frontend import module_from_jax
from shardc.hlo.ir.opset import OPS
from shardc.hlo.text.reader import read_hlo

#: Elementwise operations that need attributes in a text, or a computation.
_WITH_ATTRIBUTES = {"compare", "map", "reduce-precision"}
_ELEMENTWISE = sorted(name for name, op in OPS.items() if op.family == "elementwise" and name not in _WITH_ATTRIBUTES)
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


@pytest.mark.parametrize("opcode", _ELEMENTWISE)
def test_transcendental_operations_are_xlas(opcode: str) -> None:
    from jaxlib import _hlo, _jax

    names = [f"p{k}" for k in range(OPS[opcode].arity or 1)]
    lines = [f"{name} = f32[8] parameter({k})" for k, name in enumerate(names)]
    body = "\n".join([*lines, f"ROOT r = f32[8] {opcode}({', '.join(names)})"])
    text = f"HloModule m\nENTRY e {{\n{body}\n}}"
    xla = _jax.hlo_module_cost_analysis(jax.devices()[0].client, _hlo.hlo_module_from_text(text))
    assert program_work(read_hlo(text)).transcendentals == xla.get("transcendentals", 0)
