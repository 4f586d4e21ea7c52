"""Jitted functions that call one another, and transformations of them in a jitted function, on shardc's stages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from tests.launcher.test_job import mpiexec

W = np.full((4, 4), 0.1, np.float32)
X = np.arange(32, dtype=np.float32).reshape(8, 4) / 9
COUNT = 2
MESH = Mesh({"d": COUNT})
SPLIT: dict[str, Any] = {"mesh": MESH, "in_shardings": (None, P("d"))}

layer = shardc.jit(lambda w, x: jnp.tanh(x @ w), **SPLIT, out_shardings=P("d"))
scaled = shardc.jit(lambda x, by, *, plus: x * by + plus, static_argnums=1, static_argnames="plus")


def _loss(layer: Callable[..., Any], scaled: Callable[..., Any]) -> Callable[..., Any]:
    return lambda w, x: (scaled(layer(w, x), 3, plus=1) ** 2).sum()


def _cases(layer: Callable[..., Any], scaled: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    loss = _loss(layer, scaled)
    return {
        "called": loss,
        "differentiated": jax.grad(loss),
        "in a scan": lambda w, x: jax.lax.scan(lambda c, _: (layer(w, c), None), x, None, length=3)[0],
        "mapped": lambda w, x: jax.vmap(lambda r: scaled(r, 2, plus=0.5))(x),
    }


PLAIN = _cases(lambda w, x: jnp.tanh(x @ w), lambda x, by, *, plus: x * by + plus)


def agree() -> None:
    for name, function in _cases(layer, scaled).items():
        found = shardc.gather(shardc.jit(function, **SPLIT)(W, X))
        np.testing.assert_allclose(found, PLAIN[name](W, X), rtol=1e-5, atol=1e-5, err_msg=name)


def test_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CHECK", "1")
    agree()


def test_constraints_of_the_inner_function_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CHECK", "1")
    whole = shardc.jit(lambda x: x * 2, mesh=MESH, out_shardings=P())
    outer = shardc.jit(lambda x: whole(x) + 1, mesh=MESH, in_shardings=P("d"))
    assert [c["op"] for c in outer.partitioned(X).report()["collectives"]] == ["all-gather"]


def test_on_ranks(repository: Path) -> None:
    code = "from tests.frontends.jax.test_nested_jit import agree\nagree()\nprint('all agree')"
    done = mpiexec(COUNT, sys.executable, "-c", code, cwd=repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all agree") == COUNT
