"""`shardc.jit` on functions that the cache knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P

jax = pytest.importorskip("jax")
jnp = jax.numpy

from shardc.frontends.jax.frontend import JaxLowering  # noqa: E402

X = np.arange(8, dtype=np.float32).reshape(4, 2)


def scaled(x: Any, by: float = 2.0) -> Any:
    return {"y": jnp.sin(x) * by, "sum": x.sum()}


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A cache of its own; the result makes reading programs impossible."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))

    def refuse(lowering: Any) -> Any:
        raise AssertionError("read although the cache knows it")

    return lambda: monkeypatch.setattr(JaxLowering, "read", refuse)


@pytest.mark.parametrize("mesh", [None, Mesh({"d": 2})])
def test_known_function_is_not_read(unread: Any, mesh: Any) -> None:
    shardings = {} if mesh is None else {"mesh": mesh, "in_shardings": P("d")}
    first = shardc.jit(scaled, **shardings).compiled(X)(X)
    unread()
    again = shardc.jit(scaled, **shardings)
    np.testing.assert_array_equal(np.asarray(again.compiled(X)(X)["y"]), np.asarray(first["y"]))
    assert set(again.compiled(X).seconds) == {"read", "compile"}
    with pytest.raises(shardc.ShardcError, match="where: x"):  # the names of arguments are known
        again.compiled(X)(X.astype(np.float16))


def test_every_difference_is_read(unread: Any) -> None:
    shardc.jit(scaled, mesh=Mesh({"d": 2}), in_shardings=P("d")).compiled(X)
    shardc.jit(scaled).compiled(X)
    unread()
    others = [
        (shardc.jit(scaled, mesh=Mesh({"d": 2}), in_shardings=P(None, "d")), X),
        (shardc.jit(scaled, mesh=Mesh({"d": 4}), in_shardings=P("d")), X),
        (shardc.jit(scaled, mesh=Mesh({"e": 2}), in_shardings=P("e")), X),
        (shardc.jit(scaled, mesh=Mesh({"d": 2}), in_shardings=P("d"), out_shardings=P()), X),
        (shardc.jit(scaled, donate_argnums=0), X),
        (shardc.jit(lambda x: scaled(x, 3.0)), X),
        (shardc.jit(scaled), X[:3]),
        (shardc.jit(scaled), X.astype(np.int32)),
        (shardc.jit(scaled, custom_calls={"f": shardc.CustomCall(address=1)}), X),
    ]
    for jitted, argument in others:
        with pytest.raises(AssertionError, match="read although"):
            jitted.compiled(argument)


def test_stages_of_a_known_function(unread: Any) -> None:
    """`program` reads; compiling is not repeated."""
    program = shardc.jit(scaled, mesh=Mesh({"d": 2}), in_shardings=P("d")).program(X)
    first = program.compile()
    again = program.compile()
    assert again.executable.objects == first.executable.objects
    assert set(again.seconds) == {"read", "compile"}
    other = program.annotate({"x": P(None, "d")}, mesh=Mesh({"d": 2}))
    assert set(other.compile().seconds) == {"read", "propagate", "partition", "compile"}
    assert again.partitioned().num_devices == 2


SCRIPT = """
import jax.numpy as jnp, numpy as np, shardc
def f(x, w): return jnp.tanh(x @ w).sum(), {"a": x * 2, "b": w}
c = shardc.jit(f, mesh=shardc.Mesh({"d": 2}), in_shardings=(shardc.P("d"), None)).compiled(np.ones((4, 3), np.float32),
    np.ones((3, 5), np.float32))
print("cache" in c.executable.seconds)
"""


@pytest.mark.full
def test_other_processes_know_it(tmp_path: Path) -> None:
    def told(seed: str) -> str:
        environment = {**os.environ, "SHARDC_CACHE_DIR": str(tmp_path / "cache"), "PYTHONHASHSEED": seed}
        file = tmp_path / "step.py"
        file.write_text(SCRIPT)
        command = [sys.executable, str(file)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert [told("1"), told("2")] == ["False", "True"]


def test_one_device_runs_the_program_as_it_is(unread: Any) -> None:
    program = shardc.jit(scaled).program(X)
    assert program.for_one_device
    assert set(program.compile().seconds) == {"read", "compile"}
    partitioned = program.partition()
    assert partitioned.compiled_module is program.module
    np.testing.assert_array_equal(np.asarray(partitioned.compile()(X)["y"]), np.asarray(program.compile()(X)["y"]))
    assert not shardc.jit(scaled, mesh=Mesh({"d": 2})).program(X).for_one_device
