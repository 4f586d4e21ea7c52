"""What cannot be traced says so: the function's name, the user's line, and what to use instead."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
import random
import re
import time
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from shardc.hlo.errors import InputError, ShardcError, UnsupportedError
from shardc.hlo.numpy.functions.dispatch import REFUSED
from shardc.hlo.numpy.trace import ShapeDtype, trace_function
from tests.hlo.numpy.trace_support import check, samples, traced

X = samples("f8", 3, 4)
LIST: list[Any] = []


def loop_over_values(x: Any) -> Any:
    while x[0, 0] > 0:
        x = x - 1
    return x


def plain_buffer(x: Any) -> Any:
    out = np.zeros(3)
    out[0] = x[0, 0]
    return out


def added_to_plain_buffer(x: Any) -> Any:
    out = np.zeros((3, 4))
    out += x
    return out


# What, a piece of the message, and a piece of the way out.
CASES: list[tuple[Callable[[Any], Any], str, str]] = [
    (lambda x: x if x.sum() > 0 else -x, "a branch depends on a traced value", "np.where"),
    (loop_over_values, "a branch depends on a traced value", "shardc.while_loop"),
    (lambda x: x * float(x[0, 0]), r"float\(\).*f64\[\]", "astype"),
    (lambda x: x * int(x[0, 0]), r"int\(\)", "astype"),
    (lambda x: math.exp(x[0, 0]), "math module", "np.exp"),
    (lambda x: math.floor(x[0, 0]), "math.floor", "np.exp"),
    (lambda x: x[: x.sum().astype(int)], "a slice with traced bounds", "np.take"),
    (lambda x: np.arange(10)[x.argmax()], "asked for the elements", "np.take"),
    (lambda x: list(range(x.argmax())), "range", "shardc.fori_loop"),
    (lambda x: f"{x[0, 0]:.3f}", "formatting", "constant"),
    (lambda x: x.item(), r"item\(\)", "constant"),
    (lambda x: x.tolist(), r"tolist\(\)", "constant"),
    (lambda x: 3 in x, "`in`", "np.any"),
    (lambda x: np.array([x[0], x[1]]), "np.array", "np.stack"),
    (np.asarray, "elements of a traced value", "np.stack"),
    (plain_buffer, "traced value", "like="),
    (added_to_plain_buffer, r"plain NumPy array", "like="),
    (lambda x: x[x > 0], r"x\[mask\]", "np.where"),
    (np.nonzero, "np.nonzero.*shape depends on values", "np.where"),
    (lambda x: np.where(x > 0), r"np.where\(condition\) alone", "np.where"),
    (np.unique, "np.unique", "np.sort"),
    (np.nanmedian, "np.nanmedian", "outside of the traced function"),
    (lambda x: np.bincount(x[0].astype(int)), r"np.bincount\(x\) without minlength=", "minlength="),
    (lambda x: np.repeat(x, x[0].astype(int)), "np.repeat with traced counts", "plain integers"),
    (lambda x: np.add(x, 1, where=x > 0), "where= without out=", "np.where"),
    (np.subtract.accumulate, "np.subtract.accumulate", "outside"),
    (lambda x: np.add.reduceat(x, [0, 1]), "np.add.reduceat", "outside"),
    (np.histogram, "np.histogram", "searchsorted"),
    (lambda x: np.histogram(x, "auto", (0, 1)), "np.histogram", "range="),
    (lambda x: np.histogram2d(x[0], x[1]), "np.histogram2d with bins that", "range="),
    (lambda x: np.histogramdd(x, [x[0]] * 4), "np.histogramdd with bins that", "plain edges"),
    (lambda x: pickle.dumps({"x": x}), "pickled", "outside"),
    (lambda x: pickle.dumps(x[x > 0]), r"pickling of x\[mask\]", "np.where"),
    (memoryview, "memoryview", "outside"),
    (np.frombuffer, "bytes-like object", "outside"),
    (hash, "unhashable", "outside"),
    (lambda x: json.dumps([x]), "JSON", "outside"),
    (lambda x: x.ctypes, "x.ctypes", "no memory"),
    (lambda x: x.__array_interface__, "__array_interface__", "outside"),
    (lambda x: pow(x, 2, 3), "pow", "outside"),
    (lambda x: setattr(x, "name", 1), "name", "outside"),
    (lambda x: x.no_such_method(), "no_such_method", "outside"),
    (lambda x: Decimal(x[0, 0]), "Decimal", "outside"),
    (lambda x: x[x > 0].max(), r"np.max of x\[mask\]", "initial"),
    (lambda x: np.median(x[x > 0]), r"np.median of x\[mask\]", "np.where"),
    (lambda x: len(x[x > 0]), r"len\(\) of x\[mask\]", "np.sum"),
    (lambda x: list(x[x > 0]), r"a loop over x\[mask\]", "np.where"),
    (lambda x: float(x[x > 0]), "Masked", "outside"),
    (lambda x: x[x > 0].size, r".size of x\[mask\]", "np.sum"),
    (lambda x: np.apply_along_axis(np.sum, 0, x), "np.apply_along_axis", "whole arrays"),
    (lambda x: np.packbits(x > 0), "np.packbits", "outside"),
    (lambda x: np.pad(x, 1, mode="linear_ramp"), "linear_ramp", "edge"),
    (lambda x: np.quantile(x, x[0, 0]), "traced levels", "linear"),
    (lambda x: x.tobytes(), r"x.tobytes", "return"),
    (lambda x: x.view(np.int32), r"x.view", "astype"),
    (lambda x: np.insert(x, x[0].astype(int), 1), "np.insert", "np.concatenate"),
    (lambda x: np.median(x, out=np.zeros(())), "plain NumPy array", "like="),
    (lambda x: np.take(np.arange(9.0), x.astype(int)), "asked for the elements", "np.asarray(table, like=i)[i]"),
    (lambda x: np.linalg.tensorsolve(x, x), "np.linalg.tensorsolve", "outside"),
]


@pytest.mark.parametrize(("function", "what", "fix"), CASES, ids=[c[1] or str(k) for k, c in enumerate(CASES)])
def test_unsupported(function: Callable[[Any], Any], what: str, fix: str) -> None:
    def call(x: Any) -> Any:
        return function(x)

    with pytest.raises(UnsupportedError, match=what) as caught:
        traced(call, [X])
    assert "test_trace_errors.py:" in str(caught.value.where), caught.value
    assert fix in str(caught.value.fix), caught.value


def test_unsupported_arguments_are_named() -> None:
    with pytest.raises(UnsupportedError, match=r"np.cov\(fweights=\) is not supported"):
        traced(lambda x: np.cov(x, fweights=[1, 2, 3, 4]), [X])
    with pytest.raises(TypeError, match="unexpected keyword"):
        traced(lambda x: np.sum(x, axes=1), [X])


@pytest.mark.parametrize("name", sorted(n for n in REFUSED if hasattr(np, n)))
def test_refused_functions_say_why(name: str) -> None:
    function = getattr(np, name)
    args = {"setdiff1d": (X,), "union1d": (X,), "intersect1d": (X,)}
    more = {"setxor1d": (X,), "polyfit": (X, 1), "polydiv": (X,)}
    more |= {"savetxt": (X,), "save": (X,), "savez": (X,), "savez_compressed": (X,)}
    rest = (args | more).get(name, ())
    with pytest.raises(UnsupportedError, match=name):
        if name.startswith("save"):
            traced(lambda x: function("unused.npz", x), [X])
        elif name == "apply_along_axis":
            traced(lambda x: function(np.sum, 0, x), [X])
        elif name == "apply_over_axes":
            traced(lambda x: function(np.sum, x, 0), [X])
        elif name in ("may_share_memory", "shares_memory"):
            traced(lambda x: function(x, x), [X])
        else:
            traced(lambda x: function(x, *rest), [X])


def test_numpys_own_errors_stay() -> None:
    for function in (
        lambda x: x + np.zeros(5),
        lambda x: x.reshape(5, 5),
        lambda x: x @ x,
        lambda x: np.concatenate([x, x[0]]),
        lambda x: np.squeeze(x, 0),
        lambda x: x.astype(int) ** -1,
        lambda x: np.max(x[:0]),
        lambda x: np.einsum("ij,jk", x, x),
        lambda x: np.einsum("ii", x),
        lambda x: np.dot(x, x),
        lambda x: np.linalg.matrix_power(x, 2),
        lambda x: np.partition(x, 9),
        lambda x: np.average(x, axis=1, weights=np.ones(3)),
        lambda x: np.interp(x, [1.0, 2.0], [1.0]),
        lambda x: np.place(x.copy(), x[0] > 0, 1),
        lambda x: np.place(x.copy(), x < 9e9, []),
    ):
        with pytest.raises(ValueError, match=r"."):
            function(X)
        with pytest.raises(ValueError, match=r"."):
            traced(function, [X])
    with pytest.raises(np.exceptions.AxisError):
        traced(lambda x: x.sum(axis=2), [X])
    with pytest.raises(TypeError):
        traced(lambda x: x - (x > 0) if (x > 0) - (x > 0) is None else x, [X])
    with pytest.raises(OverflowError):
        traced(lambda x: x + 300, [np.zeros(3, np.uint8)])


def test_casting_in_place_is_refused_as_in_numpy() -> None:
    def function(x: Any) -> Any:
        x += 1.5
        return x

    with pytest.raises(InputError, match="float64 cannot be stored in an array of int64"):
        traced(function, [np.arange(3)])


def test_values_of_the_first_run_are_of_no_use_in_the_second() -> None:
    """Both runs share instructions, so that a value kept from the first could pass for one of the second."""
    for use in (lambda x, old: x + old, lambda x, old: old, lambda x, old: x.__setitem__(..., old) or x):
        kept: list[Any] = []

        def f(x: Any, kept: list[Any] = kept, use: Any = use) -> Any:
            kept.append(x * 2)
            return use(x, kept[0])

        with pytest.raises(InputError, match=r"used after the function returned|another traced function"):
            traced(f, [X])


def test_random_numbers_inside_are_refused() -> None:
    generator = np.random.default_rng(0)
    for draw in (lambda x: x + np.random.normal(size=4), lambda x: x + generator.normal(size=4)):  # noqa: NPY002
        with pytest.raises(InputError, match=r"depends on np\.random"):
            traced(draw, [X])
    with pytest.warns(RuntimeWarning, match=r"constants of the program.*draws|draws.*constants of the program"):
        traced(lambda x: x + np.random.default_rng(0).normal(size=4), [X])  # the same numbers every time: constants


class Calls:
    count = 0


def counting(x: Any) -> Any:
    Calls.count += 1
    return x * Calls.count


def appending(x: Any, seen: list[int] = []) -> Any:  # noqa: B006 - on purpose
    seen.append(1)
    for _ in seen:
        x = x + 1
    return x


@pytest.mark.parametrize(
    "function",
    [
        counting,
        appending,
        lambda x: x + time.perf_counter_ns(),
        lambda x: x + random.random(),
        lambda x: x * np.random.default_rng().normal(size=4),
        lambda x: x[:, np.random.default_rng().permutation(4)] * np.random.default_rng().random(4),
    ],
)
def test_what_changes_from_call_to_call_is_refused(function: Callable[[Any], Any]) -> None:
    with pytest.raises(InputError, match="two traces of the function differ") as caught:
        traced(function, [X])
    assert "as arguments" in str(caught.value.fix)
    assert "test_trace_errors.py:" in str(caught.value.where)


@pytest.mark.parametrize("number", [time.time, lambda: 1.0 + 1e-9 * time.perf_counter_ns() % 1e-8])
def test_numbers_that_float32_rounds_to_equal_ones_are_refused(number: Callable[[], float]) -> None:
    with pytest.raises(InputError, match=r"two traces of the function differ \(the number 1.*, then 1") as caught:
        traced(lambda x: x + number(), [X.astype(np.float32)])
    assert "test_trace_errors.py:" in str(caught.value.where)


def own_generator(x: Any) -> Any:
    return x + np.random.default_rng(3).normal(size=4)


def own_old_generator(x: Any) -> Any:
    return x + np.random.RandomState(3).normal(size=4)


def seeded(x: Any) -> Any:
    np.random.seed(1)  # noqa: NPY002
    return x + np.random.rand(4)  # noqa: NPY002


def seeded_python(x: Any) -> Any:
    random.seed(1)
    return x + random.random()


@pytest.mark.parametrize("function", [own_generator, own_old_generator, seeded, seeded_python])
def test_the_same_random_numbers_in_every_call_are_a_constant_with_a_warning(function: Callable[[Any], Any]) -> None:
    random.seed()
    np.random.seed()  # noqa: NPY002
    with pytest.warns(RuntimeWarning, match="random numbers .* are constants") as caught:
        traced(function, [X])
    if function is own_generator:
        line = function.__code__.co_firstlineno + 1
        assert f"test_trace_errors.py:{line}" in str(caught[0].message)
        assert caught[0].lineno == line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced(lambda x: x + 1, [X])


def test_a_scalar_of_numpys_is_no_view() -> None:
    def function(x: Any, i: Any) -> Any:
        first, at, zero = x[0], x[i], x[0, ...]
        x[0], x[1] = x[1], x[0]
        x += 1
        return first, at, zero, x

    check(function, [np.arange(3.0), 1], 0)


def test_copies_prints_and_outs() -> None:
    def function(x: Any, y: Any) -> Any:
        a, b = copy.copy(x), copy.deepcopy({"x": x, "same": [x]})
        x += 1
        np.add(x, 1, out=y)
        print(x, f"{x}", repr(y), file=io.StringIO())
        rows = sum(row * k for k, row in enumerate(x))
        return a, b, x, y, rows, x * len(y)

    check(function, [samples("f8", 3, 4), samples("f8", 3, 4)], 0)


def test_errors_of_the_users_code_say_where() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        traced(lambda x: x + 1 / 0, [X])
    assert "test_trace_errors.py:" in caught.value.__notes__[0]


def test_values_must_not_leave_the_function() -> None:
    def keep(x: Any) -> Any:
        LIST.append(x)
        return x

    traced(keep, [X])
    with pytest.raises(InputError, match="used after the function returned"):
        LIST[0] + 1
    with pytest.raises(InputError, match="comes from another traced function"):
        traced(lambda x: LIST[0], [X])


@pytest.mark.parametrize(
    ("function", "args", "what"),
    [
        (lambda x: "text", [X], "returns a str"),
        (lambda x: None, [X], "returns no array"),
        (lambda x: x, ["text"], "a str has no shape"),
        (lambda x: x, [np.array(["a"])], "element type <U1"),
        (lambda x: x, [ShapeDtype((2,), object)], "element type object"),
        (lambda x: x["a"], [{"a": X, 1: X}], "cannot be sorted"),
    ],
)
def test_wrong_arguments_and_results(function: Any, args: list[Any], what: str) -> None:
    with pytest.raises(ShardcError, match=what):
        trace_function(function, args)


def test_a_function_of_jax_is_told_where_it_belongs() -> None:
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(UnsupportedError, match=r"use shardc\.from_jax"):
        trace_function(lambda x: jnp.sum(jnp.sin(x)), [ShapeDtype((4, 4), np.float32)])


@pytest.mark.parametrize(
    ("shape", "dtype", "what"),
    [
        ((8, 2.5), "f4", "(8, 2.5) is not a shape"),
        ((8, -1), "f4", "(8, -1) is not a shape"),
        ((8,), "flot32", "flot32"),
    ],
)
def test_shapes_and_element_types_that_cannot_be(shape: Any, dtype: str, what: str) -> None:
    with pytest.raises(InputError, match=re.escape(what)):
        ShapeDtype(shape, dtype)
