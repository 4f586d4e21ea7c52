"""Calls of JAX functions with the wrong arguments, and functions given to the wrong front end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import AnnotationError, InputError, UnsupportedError

X, UP, DOWN = (np.ones(shape, np.float32) for shape in ((8, 4), (4, 16), (16, 4)))
MESH = Mesh({"data": 2})


def mlp(x: Any, up: Any, down: Any) -> Any:
    return jnp.maximum(x @ up, 0) @ down


def compiled() -> Any:
    return shardc.jit(mlp, mesh=MESH).compiled(X, UP, DOWN)


STRUCTURES: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("too few", (X, UP), {}, r"2 arguments given, the program takes 3: x, up, down"),
    ("too many", (X, UP, DOWN, DOWN), {}, r"4 arguments given, the program takes 3"),
    ("a list", (X, [UP, UP], DOWN), {}, r"up has the structure \[\*, \*\], and was traced with \*"),
    ("by name", (X, UP, DOWN), {"rate": 1.0}, r"the arguments by name has the structure {'rate': \*}"),
]


@pytest.mark.parametrize(("args", "kwargs", "text"), [c[1:] for c in STRUCTURES], ids=[c[0] for c in STRUCTURES])
def test_arguments_of_another_structure_are_named(args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        compiled()(*args, **kwargs)


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(TypeError, match=r"missing a required argument: 'down': the function is mlp\("):
        shardc.jit(mlp, mesh=MESH, in_shardings=(P("data"), P(), P()))(X, UP)
    with pytest.raises(InputError, match=r"missing a required argument: 'down'[\s\S]*mlp\(x: "):
        shardc.trace(mlp, X, UP)


def of_dict(x: Any, w: Any) -> Any:
    return {"out": x @ w["up"], "sum": x.sum()}


SHARDINGS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("too few", {"in_shardings": (P("data"),)}, {}, "has 1 entry, but the call has 2 arguments"),
    ("a list", {"in_shardings": [P("data")]}, {}, "has 1 entry, but the call has 2 arguments"),
    ("by name", {"in_shardings": (P("data"), None)}, {"w": {"up": UP}}, r"by position[\s\S]*by name \(w\)"),
    ("a key", {"in_shardings": (P("data"), {"upp": P()})}, {}, r"entries upp, but.* entries up\n.*in_shardings\[1\]"),
    ("one array", {"in_shardings": ((P("data"), P()), None)}, {}, r"for one array\n.*in_shardings\[0\]"),
    ("a string", {"in_shardings": ("data", None)}, {}, r"string[\s\S]*in_shardings\[0\]\n.*write P\('data'\)"),
    ("a number", {"in_shardings": (P("data"), {"up": 3})}, {}, r"not a sharding\n.*in_shardings\[1\]\['up'\]"),
    ("results", {"out_shardings": {"out": P("data")}}, {}, r"entries out, but the result is a dict .* out, sum"),
]


@pytest.mark.parametrize(("options", "named", "text"), [c[1:] for c in SHARDINGS], ids=[c[0] for c in SHARDINGS])
def test_shardings_of_another_structure_are_named(options: dict[str, Any], named: dict[str, Any], text: str) -> None:
    with pytest.raises(AnnotationError, match=text):
        shardc.jit(of_dict, mesh=MESH, **options)(*(X,) if named else (X, {"up": UP}), **named)


def test_jax_functions_that_refuse_our_specs_name_theirs() -> None:
    def constrained(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(2 * x, P("data"))

    with pytest.raises(TypeError, match="PartitionSpec") as caught:
        shardc.jit(constrained, mesh=MESH)(X)
    assert any("from jax.sharding import PartitionSpec as P" in text for text in caught.value.__notes__)


def test_errors_of_the_function_itself_have_no_note() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("a mistake of the function")

    with pytest.raises(ValueError, match="a mistake") as caught:
        shardc.jit(fails)(X)
    assert not any("function is" in text or "entries" in text for text in getattr(caught.value, "__notes__", ()))


def test_a_jax_function_in_the_numpy_front_end_is_named_with_its_line() -> None:
    with pytest.raises(UnsupportedError, match="traced value") as caught:
        shardc.trace(mlp, X, UP, DOWN)
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+", str(caught.value.where))
    assert "shardc.from_jax" in str(caught.value)


@pytest.mark.parametrize("function", [lambda x: np.sort(x)[0], lambda x: np.linalg.norm(np.sort(x))])
def test_a_numpy_function_in_the_jax_front_end_names_the_other(function: Callable[..., Any]) -> None:
    with pytest.raises(jax.errors.TracerArrayConversionError) as caught:
        shardc.from_jax(function, X)
    assert any("shardc.trace takes those of numpy" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("around", [jax.grad, jax.jit, jax.vmap])
def test_transformations_around_calls_that_jax_does_not_run_are_refused(
    around: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_CHECK", "1")
    total = shardc.jit(lambda x: (2 * x).sum(), mesh=MESH, in_shardings=P())
    with pytest.raises(UnsupportedError, match=r"cannot transform this call of shardc\.jit[\s\S]*transform inside"):
        around(total)(X)
    assert float(np.asarray(shardc.jit(jax.grad(lambda x: (2 * x).sum()), mesh=MESH)(X)).max()) == 2
