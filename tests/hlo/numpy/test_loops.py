"""Loops and branches for NumPy functions: NumPy's answer evaluated and compiled; errors that say which leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.numpy.trace import trace_function
from shardc.hlo.numpy.tree import flatten
from tests.hlo.numpy.trace_support import agree, check, compile_and_run, leaves_of, traced

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4))
F = X.astype("f4")


def laplace(u: Any) -> Any:
    return np.roll(u, 1, 0) + np.roll(u, -1, 0) - 2 * u


def conjugate_gradients(b: Any, tol: float) -> Any:
    def apply(p: Any) -> Any:
        return 3 * p - laplace(p)

    def improve(state: Any) -> Any:
        x, r, p, rr, k = state["x"], state["r"], state["p"], state["rr"], state["k"]
        q = apply(p)
        alpha = rr / np.vdot(p, q)
        x, r = x + alpha * p, r - alpha * q
        new = np.vdot(r, r)
        return {"x": x, "r": r, "p": r + new / rr * p, "rr": new, "k": k + 1}

    start = {"x": np.zeros_like(b), "r": b, "p": b, "rr": np.vdot(b, b), "k": 0}
    end = shardc.while_loop(lambda s: s["rr"] > tol**2, improve, start)
    return {"x": end["x"], "k": end["k"]}


def in_place(u: Any) -> Any:
    def step(i: Any, u: Any) -> Any:
        u[1:-1] += 0.1 * (u[2:] + u[:-2] - 2 * u[1:-1])
        u[i] = i * 0.5
        return u

    return shardc.fori_loop(1, 5, step, u), u


def numbers(x: Any) -> Any:
    """Python numbers take the types that the loop makes of them; i is one of them."""
    return shardc.fori_loop(0, 4, lambda i, s: (s[0] + x[i].sum() * i, s[1] * 0.5, s[2] + 2), (0, 1, 0))


def sums(x: Any) -> Any:
    return shardc.scan(lambda c, row: (c + row, {"sum": c + row, "top": row.max()}), np.zeros(4, x.dtype), x)


def backwards(x: Any) -> Any:
    return shardc.scan(lambda c, r: (c * 0.5 + r[0], (c, r[1])), 0.0, (x[:, 0], x[:, 1:]), reverse=True)


def counted(x: Any) -> Any:
    return shardc.scan(lambda c, _: (c * 1.5, None), x, None, length=3)


def nested(x: Any) -> Any:
    def row(i: Any, total: Any) -> Any:
        return shardc.fori_loop(0, 3, lambda j, t: t + x[i, j] * x[j, i % 4], total) + i

    return shardc.fori_loop(0, 4, row, 0.0)


def branch(x: Any) -> Any:
    half = x / 2
    made = shardc.cond(x.sum() > 0, lambda a, b: (a + half, 1), lambda a, b: (a * b, 2), x, half)
    return made, shardc.cond(np.any(x > 99), lambda: x, lambda: np.zeros_like(x)), shardc.cond(True, abs, len, x)


def branch_in_loop(x: Any) -> Any:
    def body(s: Any) -> Any:
        k, y = s
        return k + 1, shardc.cond(k % 2 == 0, lambda y: y + x, lambda y: y * 0.5, y)

    return shardc.while_loop(lambda s: (s[0] < 5) & (np.abs(s[1]).max() < 100), body, (0, x))


def captured(x: Any) -> Any:
    """The state is plain; what the loop's functions see around them is traced."""
    count = shardc.while_loop(lambda k: k < x.sum(), lambda k: k + 1, 0)
    return (
        count,
        shardc.fori_loop(0, 3, lambda i, t: t + x[i], np.zeros(4)),
        shardc.scan(lambda c, _: (c, x[0]), 0, length=2),
    )


def bounds(x: Any, n: Any) -> Any:
    return shardc.fori_loop(n - 1, n + 2, lambda i, t: t + i, 0), shardc.fori_loop(3, 1, lambda i, t: t + x, x)


def views(x: Any) -> Any:
    """A view of what changed before the loop, first read in it."""
    x = x.copy()
    row = x[1]
    x[:] *= 2
    made = shardc.fori_loop(0, 2, lambda i, t: t + row, np.zeros(4, x.dtype))
    return made, row


PROGRAMS: list[tuple[Callable[..., Any], list[Any]]] = [
    (conjugate_gradients, [X, 1e-9]),
    (in_place, [X]),
    (in_place, [F]),
    (numbers, [X]),
    (numbers, [F]),
    (sums, [X]),
    (sums, [F]),
    (backwards, [X]),
    (counted, [F]),
    (nested, [X]),
    (branch, [X]),
    (branch, [-abs(X)]),
    (branch_in_loop, [X]),
    (captured, [abs(X)]),
    (bounds, [X, 2]),
    (views, [X]),
]


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=lambda v: getattr(v, "__name__", ""))
def test_loops_have_numpys_answer(function: Callable[..., Any], args: list[Any]) -> None:
    made = check(function, args, ulps=64, what=function.__name__)
    wanted = leaves_of(function(*[np.array(a) if isinstance(a, np.ndarray) else a for a in args]))
    for got, want in zip(compile_and_run(made, args), wanted, strict=True):
        agree(got, want, 64, f"{function.__name__} compiled")


def test_a_python_loop_is_what_plain_arrays_get() -> None:
    u = X.copy()
    made = shardc.fori_loop(0, 3, lambda i, u: np.add(u, i, out=u), u)
    assert (u == X).all() and (made == X + 3).all() and type(made) is np.ndarray
    assert shardc.while_loop(lambda k: k < 5, lambda k: k + 2, 0) == 6
    last, (a, none) = shardc.scan(lambda c, x: (c + x, (c, None)), 0, np.arange(4), reverse=True)
    assert last == 6 and a.tolist() == [6, 5, 3, 0] and none is None
    _, empty = shardc.scan(lambda c, x: (c, x[0] * 2), 0, np.zeros((0, 3), "f4"))
    assert empty.shape == (0,) and empty.dtype == np.float32
    assert shardc.cond(X.sum() < 1e9, lambda a: a + 1, len, 1) == 2


def test_loops_are_one_instruction() -> None:
    made = traced(lambda x: shardc.fori_loop(0, 500, lambda i, u: u + 0.1 * laplace(u), x), [X]).module
    loops = [i for i in made.instructions() if i.opcode == "while"]
    assert len(loops) == 1 and len(list(made.instructions())) < 60


REFUSED: list[tuple[Callable[[Any], Any], str, str]] = [
    (lambda x: shardc.while_loop(lambda s: s["k"] < 3, lambda s: {"k": s["k"] + 1, "x": s["x"] * np.float64(2)},
                                 {"k": 0, "x": x}), r"init_val\['x'\] of type float32.*float64", "astype"),
    (lambda x: shardc.fori_loop(0, 3, lambda i, u: np.concatenate([u, u]), x), r"init_val of shape \(6,", "final"),
    (lambda x: shardc.fori_loop(0, 3, lambda i, s: [s[0]], (x, x)), r"the state \(\*, \(\*, \*\)\)", "same dicts"),
    (lambda x: shardc.while_loop(lambda u: u > 0, lambda u: u - 1, x), r"while_loop is pred\[6,4\]", "np.any"),
    (lambda x: shardc.while_loop(lambda u: u.sum() > 0, lambda u: "u", x), "a str cannot be part", "arrays and"),
    (lambda x: shardc.scan(lambda c, r: c + r, x[0], x), "returns a Tracer", "pair"),
    (lambda x: shardc.scan(lambda c, r: (c, r), x[0], (x, x[1:])), r"xs\[0\] says 6, xs\[1\] says 5", "equal"),
    (lambda x: shardc.scan(lambda c, r: (c, r), x[0]), "neither xs nor length", "equal"),
    (lambda x: shardc.cond(x.sum() > 0, lambda: x, lambda: x[0]), r"as f32\[6,4\] and as f32\[4\]", "broadcast_to"),
    (lambda x: shardc.cond(x.sum() > 0, lambda: x, lambda: (x,)), "different structures", "both"),
    (lambda x: shardc.cond(x > 0, lambda: x, lambda: -x), "pred", "np.where"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "what", "fix"), REFUSED)
def test_errors_say_which_leaf_and_how_to_mend(function: Callable[[Any], Any], what: str, fix: str) -> None:
    with pytest.raises(InputError, match=what) as raised:
        trace_function(function, [F])
    assert fix in str(raised.value) and "test_loops.py" in str(raised.value)


def test_what_a_loop_leaves_behind_is_refused() -> None:
    kept: list[Any] = []

    def leak(x: Any) -> Any:
        shardc.fori_loop(0, 3, lambda i, u: (kept.append(u + 1), u)[1], x)
        return kept[-1] * 2

    def change(x: Any) -> Any:
        def step(i: Any, total: Any) -> Any:
            x[i] = 0
            return total + x.sum()

        return shardc.fori_loop(0, 3, step, 0.0)

    with pytest.raises(InputError, match="inside of a loop's or branch's function"):
        trace_function(leak, [X])
    with pytest.raises(UnsupportedError, match="in place that is not its argument"):
        trace_function(change, [X])


def test_traced_conditions_name_the_way_out() -> None:
    def until(x: Any) -> Any:
        while x.sum() > 1:
            x = x / 2
        return x

    for function, names in (
        (until, ["shardc.while_loop"]),
        (lambda x: x if x.sum() > 0 else -x, ["np.where", "shardc.cond"]),
        (lambda x: [x for _ in range(x.argmax())], ["shardc.fori_loop"]),
    ):
        with pytest.raises(UnsupportedError) as raised:
            trace_function(function, [X])
        assert all(n in str(raised.value) for n in names)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_loops_over_devices(count: int) -> None:
    """Conjugate gradients to a tolerance: one program, whose iterations send halos and two numbers."""
    b = RNG.normal(size=(64, 4))
    program = shardc.trace(conjugate_gradients, b, 1e-9, mesh=Mesh({"x": count}), in_shardings=(P("x"), None))
    partitioned = program.partition()
    got = partitioned.compile("cpu")(b, 1e-9)
    want = conjugate_gradients(b, 1e-9)
    assert int(np.asarray(got["k"])) == want["k"]
    for g, w in zip(flatten(got)[0], flatten(want)[0], strict=True):
        np.testing.assert_allclose(np.asarray(g), w, atol=1e-9)
    halo = 2 * 4 * 8 * (count > 1)
    assert partitioned.report()["wire_bytes"] <= 2 * (halo + 3 * 2 * 8)


@pytest.mark.parametrize("upper", [2.5, np.float32(3), "3", [3]])
def test_bounds_that_are_no_integers_are_refused(upper: Any) -> None:
    """Traced or not: a loop up to 2.5 would run three times."""

    def count(x: Any) -> Any:
        return shardc.fori_loop(0, upper, lambda i, s: s + 1, x)

    for call in (lambda: count(X), lambda: trace_function(count, [X])):
        with pytest.raises(InputError, match=r"upper of fori_loop is .*, not an integer") as caught:
            call()
        assert "test_loops.py" in str(caught.value)


def test_traced_bounds_that_are_no_integers_are_refused() -> None:
    with pytest.raises(InputError, match="upper of fori_loop is of float64, not an integer"):
        trace_function(lambda x, n: shardc.fori_loop(0, n, lambda i, s: s + 1, x), [X, 3.0])
