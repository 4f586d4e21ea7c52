"""What JAX can put into a module besides plain functions: transformations, control flow, random number generators,
narrow types, x64, manual computations. Read, verified, printed and evaluated, against JAX itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from shardc.hlo.evaluate import evaluate  # noqa: E402
from shardc.hlo.stablehlo.reader import module_from_mlir, read_stablehlo  # noqa: E402
from shardc.hlo.text.equal import difference  # noqa: E402
from shardc.hlo.text.printer import print_module  # noqa: E402
from shardc.hlo.text.reader import read_hlo  # noqa: E402
from shardc.hlo.verify import verify  # noqa: E402

X = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)
V = np.linspace(-2, 2, 5, dtype=np.float32)
KEY = np.array([0, 42], np.uint32)
WIDE_KEY = np.arange(4, dtype=np.uint32)


@jax.custom_jvp
def doubled_sine(x: Any) -> Any:
    return 2 * jnp.sin(x)


doubled_sine.defjvp(lambda p, t: (doubled_sine(p[0]), 2 * jnp.cos(p[0]) * t[0]))


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))


def random(sample: Callable[[Any], Any], impl: str = "threefry2x32") -> Callable[[Any], Any]:
    return lambda data: sample(jax.random.wrap_key_data(data, impl=impl))


def through(dtype: str) -> Callable[[Any], Any]:
    """There and back, so that no result has a type that NumPy compares badly; XLA may not leave it out."""
    return lambda x: lax.optimization_barrier(x.astype(getattr(jnp, dtype))).astype(jnp.float32)


TYPES = (
    "bfloat16 float16 float8_e4m3fn float8_e5m2 float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2fnuz float8_e3m4 "
    "float8_e4m3 float8_e8m0fnu float4_e2m1fn int4 uint4 int2 uint2"
)
SPECIAL = (
    "erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e acos asin asinh atan atanh sinh cosh tan cbrt logistic "
    "is_finite round expm1 log1p"
)

CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "vmap of grad": (jax.vmap(jax.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2))), (X,)),
    "jvp": (lambda x: jax.jvp(jnp.tanh, (x,), (x,)), (X,)),
    "hessian": (jax.hessian(lambda x: jnp.sum(jnp.tanh(x) ** 3)), (V,)),
    "custom_jvp": (jax.grad(lambda x: jnp.sum(doubled_sine(x))), (V,)),
    "custom_vjp": (jax.grad(lambda x: jnp.sum(clipped(x) ** 2)), (V,)),
    "remat": (jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x))), (V,)),
    "scan": (lambda x: lax.scan(lambda c, y: (c + y, c * y), jnp.zeros(4), x, reverse=True, unroll=2), (X,)),
    "grad of scan": (jax.grad(lambda x: lax.scan(lambda c, y: (jnp.sin(c + y), c), jnp.ones(4), x)[0].sum()), (X,)),
    "while": (lambda x: lax.while_loop(lambda c: jnp.sum(c) < 100, lambda c: c * 2, x), (X,)),
    "vmap of while": (jax.vmap(lambda x: lax.while_loop(lambda c: c < 9, lambda c: c * 2, x)), (np.abs(V) + 1,)),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda y: y + 1, lambda y: y - 1, x), (X,)),
    "switch": (lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x), (X, np.int32(7))),
    "nested jit": (jax.jit(lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(x * 2)), (V,)),
    "composite": (lax.composite(lambda x: x * 2 + 1, "my.composite"), (V,)),
    "barrier": (lambda x: lax.optimization_barrier((x, x + 1)), (V,)),
    "pytrees": (lambda d: {"s": d["a"] + 1, "t": [d["b"], (d["a"],)]}, ({"a": V, "b": X},)),
    "unused argument": (lambda x, y: x + 1, (V, X)),
    "hoisted constants": (lambda x: x + np.arange(12, dtype=np.float32).reshape(3, 4) + (1 + 2j), (X,)),
    "ragged_dot": (lambda x: lax.ragged_dot(x, jnp.ones((2, 4, 3)), jnp.array([1, 2], jnp.int32)), (X,)),
    "dot algorithm": (lambda x: lax.dot(x, x.T, precision="BF16_BF16_F32_X3"), (X,)),
    "threefry normal": (random(lambda k: jax.random.normal(k, (7,))), (KEY,)),
    "threefry split": (random(lambda k: jax.random.key_data(jax.random.split(k, 3))), (KEY,)),
    "permutation": (random(lambda k: jax.random.permutation(k, 9)), (KEY,)),
    "categorical": (random(lambda k: jax.random.categorical(k, jnp.arange(5.0))), (KEY,)),
    "gamma": (random(lambda k: jax.random.gamma(k, 2.0, (4,))), (KEY,)),
    "rbg": (random(lambda k: jax.random.uniform(k, (7,)), "rbg"), (WIDE_KEY,)),
    "unsafe_rbg": (random(lambda k: jax.random.normal(jax.random.split(k)[0], (7,)), "unsafe_rbg"), (WIDE_KEY,)),
    "philox": (lambda k: lax.rng_bit_generator(k, (5,), algorithm=lax.RandomAlgorithm.RNG_PHILOX), (WIDE_KEY,)),
    "bits": (lambda x: (lax.bitcast_convert_type(x, jnp.int8), lax.reduce_precision(x, 5, 10)), (V,)),
    **{name: (through(name), (np.abs(V),)) for name in TYPES.split() if hasattr(jnp, name)},
    **{name: (getattr(lax, name), (np.abs(V) / 4 + 0.1,)) for name in SPECIAL.split()},
    "two-argument specials": (
        lambda x: (
            lax.igamma(x, x),
            lax.igammac(x, x),
            lax.polygamma(x + 1, x),
            lax.zeta(x + 2, x),
            lax.nextafter(x, -x),
        ),
        (np.abs(V) + 0.5,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_feature(name: str) -> None:
    function, args = CASES[name]
    lowered = jax.jit(function).lower(*args)
    module = module_from_mlir(lowered.compiler_ir("stablehlo"))
    verify(module)
    assert difference(module, read_hlo(print_module(module))) is None
    kept = lowered._lowering.compile_args["kept_var_idx"]
    given = [np.asarray(a) for k, a in enumerate(jax.tree.leaves(args)) if k in kept]
    wanted = jax.tree.leaves(jax.jit(function)(*args))
    compare(evaluate(module, given), [np.asarray(w) for w in wanted])
    assert len(read_stablehlo(lowered.as_text(debug_info=True)).parameters) == len(given)


def compare(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            rtol = 1e-2 if b.dtype.itemsize == 2 else 2e-4
            np.testing.assert_allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=rtol, atol=1e-5)


MANUAL = """
import jax, numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from shardc.hlo.evaluate import evaluate
from shardc.hlo.stablehlo.reader import module_from_mlir
from shardc.hlo.verify import verify

mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
a = np.arange(64, dtype=np.float32).reshape(8, 8)
cycle = [(i, (i + 1) % 4) for i in range(4)]
def manual(f, i, o, **k):
    return jax.shard_map(f, mesh=mesh, in_specs=i, out_specs=o, **k)
def loop(v):
    return lax.fori_loop(0, 3, lambda i, c: c + lax.pmean(c, "x"), v)
cases = {
    "psum": (manual(lambda v, w: (lax.psum(v @ w, "y"), v * 2), (P("x", "y"), P("y")), (P("x"), P("x", "y"))), a, a),
    "partly": (manual(lambda v: lax.psum(v, "x"), P("x"), P(), axis_names={"x"}), a),
    "gather": (manual(lambda v: lax.all_gather(v, "y", axis=1, tiled=True), P("x", "y"), P("x"), check_vma=False), a),
    "all-to-all": (manual(lambda v: lax.all_to_all(v, "y", 1, 0, tiled=True), P("y"), P(None, "y")), a),
    "permute": (manual(lambda v: lax.ppermute(v, "y", cycle), P(("x", "y")), P(("x", "y"))), a),
    "index": (manual(lambda v: v + lax.axis_index("x") * 10 + lax.axis_index("y"), P(("y", "x")), P(("y", "x"))), a),
    "scatter": (manual(lambda v: lax.psum_scatter(v, "y", scatter_dimension=1, tiled=True), P("y"), P(None, "y")), a),
    "loop": (manual(loop, P("x", "y"), P("x", "y"), check_vma=False), a),
    "vmap": (jax.vmap(manual(lambda v: lax.psum(v, "x"), P("x"), P())), a),
}
for name, (f, *args) in cases.items():
    module = module_from_mlir(jax.jit(f).lower(*args).compiler_ir("stablehlo"))
    verify(module)
    for found, wanted in zip(evaluate(module, args), jax.tree.leaves(jax.jit(f)(*args)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=name)
print(len(cases), "done")
"""


def run(code: str, **env: str) -> str:
    path = ":".join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **env},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this JAX has no jax.shard_map")
def test_manual_computations_run_on_the_devices_of_their_mesh() -> None:
    """A process of its own, as JAX itself needs eight devices."""
    assert run(MANUAL, XLA_FLAGS="--xla_force_host_platform_device_count=8") == "9 done\n"


X64 = """
import jax, jax.numpy as jnp, numpy as np
from shardc.hlo.evaluate import evaluate
from shardc.hlo.stablehlo.reader import module_from_mlir
x = np.linspace(0.1, 0.9, 6).reshape(2, 3)
n = np.array([2**40, -5, 7])
cases = [
    (lambda a: (jnp.linalg.norm(a), a @ a.T, a + 1j), (x,)),
    (lambda a: (a // 3, a % 3, a << 2, jnp.cumsum(a), a.astype(jnp.uint64)), (n,)),
    (lambda k: jax.random.normal(jax.random.wrap_key_data(k), (3,)), (np.array([0, 1], np.uint32),)),
    (jax.grad(lambda a: jnp.sum(jax.scipy.special.gammaln(a))), (x,)),
]
for f, args in cases:
    module = module_from_mlir(jax.jit(f).lower(*args).compiler_ir("stablehlo"))
    for found, wanted in zip(evaluate(module, args), jax.tree.leaves(jax.jit(f)(*args)), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
"""


def test_x64() -> None:
    run(X64, JAX_ENABLE_X64="1")


def test_donated_arguments_are_aliases() -> None:
    lowered = jax.jit(lambda a, b: (b * 2, a + 1), donate_argnums=(0, 1)).lower(X, V)
    module = module_from_mlir(lowered.compiler_ir("stablehlo"))
    assert {(a.output, a.parameter) for a in module.aliases} == {((1,), 0), ((0,), 1)}


def test_every_way_of_writing_a_module_down() -> None:
    """Text, bytecode, and what jax.export made for older releases too."""
    from jax import export

    function = jax.jit(partial(lax.scan, lambda c, y: (c + y, c * y)))
    lowered = function.lower(jnp.zeros(4), X)
    wanted = jax.tree.leaves(function(jnp.zeros(4), X))
    forms: list[bytes | str] = [lowered.as_text(), lowered.as_text(debug_info=True)]
    first, last = (getattr(export, f"{w}_supported_calling_convention_version") for w in ("minimum", "maximum"))
    for version in range(first, last + 1):
        with calling_convention(version):
            forms.append(bytes(export.export(function)(jnp.zeros(4), X).mlir_module_serialized))
    for form in forms:
        compare(evaluate(read_stablehlo(form), [np.zeros(4, np.float32), X]), [np.asarray(w) for w in wanted])


def calling_convention(version: int) -> Any:
    from jax._src.config import jax_export_calling_convention_version as setting

    return setting(version)


def test_frontend_attributes_are_kept() -> None:
    metadata = pytest.importorskip("jax.experimental.xla_metadata")

    def marked(x: Any) -> Any:
        with metadata.set_xla_metadata(group="a b", level=3):
            return x @ x.T

    module = module_from_mlir(jax.jit(marked).lower(X).compiler_ir("stablehlo"))
    (product,) = (i for i in module.entry if i.opcode == "dot")
    assert dict(product.attrs["frontend_attributes"]) == {"group": "a b", "level": "3"}
    assert difference(module, read_hlo(print_module(module))) is None
