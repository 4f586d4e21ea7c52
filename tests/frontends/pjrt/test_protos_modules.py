"""Modules as messages: jaxlib reads them and prints what it prints for their text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jaxlib import _hlo

from shardc.frontends.pjrt.protos.hlo_messages import HloModuleWithConfigProto, LiteralProto
from shardc.frontends.pjrt.protos.messages import LayoutProto, ShapeProto
from shardc.frontends.pjrt.protos.modules import ELEMENT_TYPES, literal_of, module_message, module_with_config
from shardc.hlo.ir.build import make_instruction, make_module
from shardc.hlo.ir.ir import Computation, Module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape, dtype_of
from shardc.hlo.text.printer import print_module
from shardc.sharding.notations.partition_spec import PartitionSpec as P
from shardc.stages.programs import from_jax


def _text(module: Any) -> str:
    """XLA's print of a module, with names by their order; the header is a matter of the configuration."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = options.print_metadata = True
    names: dict[str, str] = {}
    body = module.to_string(options).split("\n", 1)[1]
    return re.sub(r"%[\w.\-]+", lambda found: names.setdefault(found[0], f"%n{len(names)}"), body)


def _check(module: Module) -> None:
    read = _hlo.HloModule.from_serialized_hlo_module_proto(module_message(module).to_bytes())
    assert _text(read) == _text(_hlo.hlo_module_from_text(print_module(module, for_xla=False)))


_X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
_S = np.eye(4, dtype=np.float32) * 3
_I = np.array([[2, 0], [1, 5], [3, 3]])
_KEY = np.array([1, 2], np.uint32)

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "contractions": (lambda x: jnp.einsum("ij,kj->ik", x, x, precision="highest"), (_X,)),
    "shapes": (
        lambda x: jnp.pad(jnp.concatenate([x[1:, ::2], x[:3, 3:]]), ((1, 2), (0, 1)))[::-1].T.ravel(),
        (_X,),
    ),
    "indexing": (lambda x, i: x.at[i[:, 0], i[:, 1]].add(x[i[:, 0], i[:, 1]]), (_X, _I)),
    "windows": (
        lambda x: (
            jax.lax.conv_general_dilated(x[None, None], x[None, None, :2, :3], (1, 2), "SAME", (1, 1), (2, 1))
            + jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (2, 2), "VALID").sum()
        ),
        (_X,),
    ),
    "control": (
        lambda x: jax.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, jax.lax.cond(c[0] > 1, jnp.sin, jnp.cos, c[1])), (0, x)
        ),
        (_X,),
    ),
    "sorting": (lambda x: (jnp.sort(x, axis=0), jnp.argsort(x), jax.lax.top_k(x, 2)), (_X,)),
    "linalg": (
        lambda s: (jnp.linalg.cholesky(s), jax.scipy.linalg.solve_triangular(s, s, lower=True), jnp.linalg.svd(s)),
        (_S,),
    ),
    "fourier": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), (_X,)),
    "random": (lambda k: jax.random.normal(k, (5,)), (_KEY,)),
    "constants": (
        lambda: [
            jnp.asarray(np.arange(3).astype(t))
            for t in (
                *("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "complex64"),
                *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4),
            )
        ],
        (),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_modules_read_as_their_text(name: str) -> None:
    function, arguments = PROGRAMS[name]
    _check(from_jax(jax.jit(function), *arguments).module)


def test_partitioned_modules_read_as_their_text() -> None:
    def step(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), jnp.roll(c, 1, 0).sum()), x, None, length=3)

    mesh = Mesh({"data": 2, "model": 2})
    program = from_jax(jax.jit(step, donate_argnums=1), np.zeros((8, 8), "f4"), np.zeros((4, 8), "f4"))
    module = program.annotate({"w": P(None, "model"), "x": P("data")}, mesh=mesh).partition().module
    assert "all-gather" in print_module(module)
    _check(module)
    config = HloModuleWithConfigProto.read(module_with_config(module)).config
    assert config is not None and config.num_partitions == 4
    assert config.entry_computation_layout is not None
    assert [s.dimensions for s in config.entry_computation_layout.parameters] == [(8, 4), (2, 8)]


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint8", "int32", "uint64", "bfloat16", "float32", "complex64"])
def test_constants_are_read_as_they_were_written(dtype: str) -> None:
    array = (np.arange(-12, 12) % 7).reshape(2, 3, 4).astype(np.dtype(dtype))
    shape = array_shape(dtype_of(array.dtype), 2, 3, 4)
    computation = Computation("e", [i := make_instruction("constant", literal=Literal(array))], i)
    message = module_message(make_module("m", computation)).computations[0].instructions[0].literal
    assert message is not None and literal_of(LiteralProto.read(message.to_bytes()), shape) == Literal(array)


def test_constants_in_another_order() -> None:
    shape = ShapeProto(ELEMENT_TYPES["f32"], (2, 3), layout=LayoutProto((0, 1)))
    message = LiteralProto(shape, f32s=np.arange(6, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(
        literal_of(message, array_shape(dtype_of(np.dtype("f4")), 2, 3)).array, [[0, 2, 4], [1, 3, 5]]
    )
