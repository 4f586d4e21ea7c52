"""``import shardc.numpy as np``: arrays that are sharded from their creation on, against NumPy's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import shardc
import shardc.numpy as np
from shardc import Mesh, P
from shardc.hlo.errors import AnnotationError
from tests.launcher.test_job import mpiexec

MESH = Mesh({"x": 2, "y": 2})

MADE: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda m: m.zeros((40, 33)),
    "ones": lambda m: m.ones(50, numpy.int32),
    "full": lambda m: m.full((40, 35), 2.5),
    "full of a row": lambda m: m.full((40, 35), numpy.arange(35)),
    "arange": lambda m: m.arange(70),
    "arange of floats": lambda m: m.arange(0.5, 9, 0.1),
    "arange backwards": lambda m: m.arange(100, 0, -3, dtype="int16"),
    "arange of nothing": lambda m: m.arange(5, 2),
    "linspace": lambda m: m.linspace(0, 1, 101),
    "linspace without its end": lambda m: m.linspace(3.0, -2, 77, endpoint=False),
    "linspace of integers": lambda m: m.linspace(0, 50, 64, dtype=int),
    "linspace of one": lambda m: m.linspace(2, 5, 1),
    "linspace of equals": lambda m: m.linspace(1, 1, 40),
    "eye": lambda m: m.eye(40, 50, 3),
    "identity": lambda m: m.identity(36, dtype="float32"),
    "indices": lambda m: m.indices((40, 36))[0],
    "sparse indices": lambda m: m.indices((40, 36), sparse=True)[1],
    "fromfunction": lambda m: m.fromfunction(lambda i, j: i * j + 1, (33, 40)),
    "array": lambda m: m.array([[1, 2.5], [3, 4]], ndmin=3),
    "asarray": lambda m: m.asarray(range(64), dtype="float32"),
    "like": lambda m: m.zeros_like(m.ones((40, 40))),
    "like=": lambda m: m.zeros((40, 40), like=m.ones(3)) + m.arange(40, like=m.ones(3)),
    "meshgrid": lambda m: m.meshgrid(m.linspace(0, 1, 40), m.arange(36))[0],
    "NumPy's own": lambda m: m.linalg.norm(m.ones(36)) + m.pi * m.float32(2),
}


@pytest.mark.parametrize("name", MADE)
def test_made_as_numpy_makes_it(name: str) -> None:
    with np.use_mesh(MESH):
        found = MADE[name](np)
    wanted = MADE[name](numpy)
    assert found.dtype == wanted.dtype
    numpy.testing.assert_array_equal(numpy.asarray(found), wanted)


def test_where_they_lie() -> None:
    with np.use_mesh(MESH):
        assert str(np.zeros((64, 64)).sharding) == "[{x}, {y}]"
        assert str(np.zeros((64, 9)).sharding) == "[{x}, {}]"  # too few for two parts
        assert str(np.zeros(9).sharding) == "[{}]"
        assert str(np.zeros((64, 64), sharding=P(None, "x")).sharding) == "[{}, {x}]"
        assert np.zeros(64, mesh=Mesh({"z": 4})).sharding.mesh == Mesh({"z": 4})
        assert np.zeros(64, sharding=(Mesh({"z": 4}), P("z"))).sharding.mesh == Mesh({"z": 4})
        with pytest.raises(AnnotationError, match="no_axis"):
            np.zeros(64, sharding=P("no_axis"))
    with np.use_mesh(MESH, P(("x", "y"))):
        assert str(np.zeros((64, 64)).sharding) == "[{x, y}, {}]"
        assert str(np.zeros(()).sharding) == "[]"


def test_devices_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_NUM_DEVICES", "3")
    assert np.zeros(99).sharding.mesh.size == 3


def test_a_traced_function_makes_traced_values() -> None:
    def step(u: Any) -> Any:
        v = np.zeros((4, 8))
        v[1] = np.arange(8)
        w = np.full(8, u.max()) + np.linspace(0, 1, 8)
        return u + v + np.eye(4, 8) + w + np.array([u[0, 0], 2.0] * 4) + np.indices((4, 8))[1]

    u = numpy.random.default_rng(0).random((4, 8))
    compiled = shardc.trace(step, u, mesh=MESH, in_shardings=(P("x", "y"),)).compile()
    numpy.testing.assert_allclose(numpy.asarray(compiled(u)), numpy.asarray(step(u)))


def test_a_script(tmp_path: Path, repository: Path) -> None:
    """The same script, under NumPy and over ranks: in-place steps, reductions, rows that are gathered."""
    script = """
u = np.zeros((40, 48)); u[0] = 1.0
x = np.linspace(0, 1, 48)
for _ in range(5):
    u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    u[:, 0] = u[:, 1]
u *= 1 + x
text = f"{u.sum():.12f} {u.max():.12f} {np.sqrt((u**2).mean()):.12f} {u.argmax()} {u[3, 5]:.12f}"
"""
    plain: dict[str, Any] = {"np": numpy}
    exec(script, plain)
    ours = tmp_path / "script.py"
    report = "import shardc\nif shardc.process_index() == 0:\n    print(text)\n"
    ours.write_text(f"import shardc.numpy as np\n{script}{report}")
    done = mpiexec(2, sys.executable, str(ours), cwd=repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == plain["text"].split()
