"""`shardc.jit` and `shardc.numpy.jit` of NumPy functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import shardc
import shardc.numpy as np
from shardc import Mesh, P
from shardc.hlo.errors import AnnotationError, InputError, UnsupportedError

MESH = Mesh({"x": 2})
X = numpy.random.default_rng(1).random((8, 6))


def smooth(u: Any, rate: float) -> Any:
    """In-place steps, which JAX does not trace."""
    for _ in range(3):
        u[1:-1] += rate * (u[2:] + u[:-2] - 2 * u[1:-1])
    return {"u": u, "norm": np.linalg.norm(u)}


@pytest.mark.parametrize("jit", [shardc.jit, np.jit])
def test_functions_of_numpy(jit: Any) -> None:
    step = jit(smooth, mesh=MESH, in_shardings=(P("x"), None))
    wanted = smooth(X.copy(), 0.2)
    for u in (X, shardc.array(X, (MESH, P("x")))):
        found = step(u, 0.2)
        assert found["u"].dtype == numpy.float64
        assert found["u"].sharding == shardc.array(X, (MESH, P("x"))).sharding
        numpy.testing.assert_allclose(numpy.asarray(found["u"]), wanted["u"])
        numpy.testing.assert_allclose(float(found["norm"]), wanted["norm"])
    assert step.compiled(X, 0.2) is step.compiled(X + 1, 0.5)
    assert step.compiled(X, 0.2) is not step.compiled(X[1:], 0.2)
    assert step.program(X, 0.2).partition().report()["devices"] == 2


def test_the_mesh_of_the_arguments_counts() -> None:
    x = shardc.array(X, (MESH, P("x")))
    found = np.jit(lambda a: a * 2)(x)
    assert found.sharding == x.sharding
    assert found.dtype == X.dtype


def test_static_arguments_by_position() -> None:
    power = np.jit(lambda n, x: x**n, static_argnums=0)
    numpy.testing.assert_allclose(numpy.asarray(power(3, X)), X**3)


def test_static_arguments_from_the_end_and_by_a_name_that_is_given_by_position() -> None:
    for options in ({"static_argnums": -1}, {"static_argnames": "n"}):
        power = np.jit(lambda x, n: x**n, **options)
        numpy.testing.assert_allclose(numpy.asarray(power(X, 3)), X**3)
        numpy.testing.assert_allclose(numpy.asarray(power(X, n=3)), X**3)


def test_donated_arguments_by_name() -> None:
    x = shardc.array(X, (MESH, P("x")))
    found = np.jit(lambda a, b: a + b, donate_argnames="a")(x, 1.0)
    numpy.testing.assert_array_equal(numpy.asarray(found), X + 1)
    with pytest.raises(InputError, match=r"(?s)'c'.*a, b"):
        np.jit(lambda a, b: a + b, donate_argnames="c")


def test_no_bits_are_lost() -> None:
    """`shardc.jit` has JAX's types where JAX traces the function, `shardc.numpy.jit` NumPy's."""
    found = np.jit(lambda a: a / 3)(shardc.array(X, (MESH, P("x"))))
    assert found.dtype == numpy.float64
    numpy.testing.assert_array_equal(numpy.asarray(found), X / 3)


def test_a_stream_among_the_arguments() -> None:
    rng, outside = np.random.default_rng(2), np.random.default_rng(2)
    step = shardc.jit(lambda u, rng: u + rng.random(u.shape), mesh=MESH)
    for _ in range(2):
        wanted = X + numpy.asarray(outside.random(X.shape))
        numpy.testing.assert_allclose(numpy.asarray(step(X, rng)), wanted, rtol=1e-15)


def test_what_is_not_traced_is_said() -> None:
    with pytest.raises(UnsupportedError, match="unique") as e:
        np.jit(lambda x: np.unique(x) + 1)(X)
    assert "test_jit.py" in str(e.value)
    with pytest.raises(Exception, match="__array__") as jax:
        shardc.jit(lambda x: np.unique(x) + 1)(X)
    assert any("np.unique" in note for note in jax.value.__notes__)


def test_scipy_that_wants_elements_is_named_at_the_users_line() -> None:
    integrate = pytest.importorskip("scipy.integrate")
    special = pytest.importorskip("scipy.special")
    for function in (integrate.simpson, special.gamma):
        with pytest.raises(UnsupportedError) as e:
            np.jit(lambda x, function=function: function(x) + 1)(X)
        assert "test_jit.py" in str(e.value)
    x = shardc.array(X, (MESH, P("x")))
    numpy.testing.assert_allclose(special.gamma(x), special.gamma(X))  # outside of it, of the whole value
    numpy.testing.assert_allclose(integrate.simpson(x), integrate.simpson(X))


def test_methods() -> None:
    class Model:
        scale = 3.0

        @np.jit
        def twice(x: Any) -> Any:  # noqa: N805 - the array is the function's only argument
            return x * 2

    numpy.testing.assert_array_equal(numpy.asarray(Model.twice(X)), X * 2)


def test_without_jax(repository: Path) -> None:
    code = (
        "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
        "import numpy as np, shardc\n"
        "print(shardc.jit(lambda x, y: x * y + x.sum(), mesh=shardc.Mesh({'d': 2}))(np.arange(4.0), y=3).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=repository, check=False)
    assert done.stdout.strip() == "[6.0, 9.0, 12.0, 15.0]", done.stderr


def test_each_layout_of_an_argument_has_its_program() -> None:
    double = np.jit(lambda x: x * 2)
    x = numpy.ones((8, 8), numpy.float32)
    for sharding in ((MESH, P("x")), None, (Mesh({"a": 2, "b": 2}), P("a")), (MESH, P(None, "x"))):
        spec = shardc.ShapeDtype((8, 8), "float32", sharding)
        wanted = double.program(spec).propagate().partition().report()["results"][0]["local_shape"]
        assert double.compiled(spec).executable.results[0].local_shape.dims == tuple(wanted)
    with pytest.raises(AnnotationError, match="is not a PartitionSpec"):
        double.compiled(shardc.ShapeDtype((8, 8), "float32", "x"))
    assert double(x).sharding is None
