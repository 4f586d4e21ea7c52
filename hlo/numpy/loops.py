"""`while_loop`, `fori_loop`, `scan` and `cond` for NumPy functions, with the signatures of JAX's.

Called on plain arrays they compute as the Python loop or branch would. Inside of a traced function they are one
instruction, whose functions are traced once. That a call is inside shows by its arguments, or by what its functions
give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError, Location
from shardc.hlo.numpy.control import leaves_of_state, run_conditional, run_while, settle
from shardc.hlo.numpy.recorder import Trace, user_line
from shardc.hlo.numpy.trace import ShapeDtype, trace_function
from shardc.hlo.numpy.tracer import Tracer
from shardc.hlo.numpy.tree import flatten, unflatten
from shardc.hlo.numpy.values import constant, emit, find_recorder, full, lift, reshape
from shardc.hlo.units import kind_text

__all__ = ["cond", "fori_loop", "scan", "while_loop"]


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Apply ``body_fun`` to a state, first ``init_val``, while ``cond_fun`` of the state is true; returns the last
    state.

    The state is an array or a number, or dicts, lists and tuples of those. In a traced function each array keeps its
    shape and element type; `InputError` names the one that does not. The functions may use traced values from around
    them.

    >>> shardc.while_loop(lambda x: x < 100, lambda x: 2 * x, 3)
    192
    """
    recorder = _recorder(init_val)
    state = _own(init_val)
    while recorder is None:
        going = cond_fun(state)
        recorder = _recorder(going)
        if recorder is not None:
            break
        if not going:
            return state
        state = body_fun(state)
        recorder = _recorder(state)
    return run_while(recorder, "while_loop", init_val, cond_fun, body_fun, _names(init_val, "init_val"))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: Any = None) -> Any:
    """Run ``for i in range(lower, upper): val = body_fun(i, val)`` from ``init_val``, and return the last ``val``.

    Bounds are integers, and may be traced; `InputError` for others. ``unroll`` is accepted as in JAX, and changes
    nothing. State and errors are those of `while_loop`.

    >>> shardc.fori_loop(0, 5, lambda i, total: total + i, 0)
    10
    """
    _check_bounds(lower=lower, upper=upper)
    recorder = _recorder((lower, upper, init_val))
    if recorder is None:
        state = _own(init_val)
        for i in range(lower, upper):
            state = body_fun(i, state)
            recorder = _recorder(state)
            if recorder is not None:
                break
        else:
            return state
    assert recorder is not None
    return run_while(
        recorder,
        "fori_loop",
        (lower, init_val),
        lambda s: s[0] < upper,
        lambda s: (s[0] + 1, body_fun(s[0], s[1])),
        ["lower", *_names(init_val, "init_val")],
    )[1]


def scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: Any = 1,
) -> tuple[Any, Any]:
    """Compute ``carry, y = f(carry, x)`` for each ``x`` along the first dimension of ``xs``; returns the last carry and
    all ``y``.

    ``xs`` and ``y`` are arrays, or dicts, lists and tuples of those. ``xs`` may be None with a ``length``. ``reverse``
    goes from the last to the first. ``unroll`` is accepted as in JAX, and changes nothing. State and errors are those
    of `while_loop`.

    >>> total, sums = shardc.scan(lambda c, x: (c + x, c + x), 0.0, np.array([1.0, 2.0, 3.0]))
    >>> total, sums
    (np.float64(6.0), array([1., 3., 6.]))
    """
    items, tree = flatten(xs)
    count = _length(items, tree.names("xs"), length)
    recorder = _recorder((init, items))
    if recorder is None:
        state, made = _own(init), []
        for k in reversed(range(count)) if reverse else range(count):
            result = f(state, unflatten(tree, iter([x[k] for x in items])))
            recorder = _recorder(result)
            if recorder is not None:
                break
            state, y = _pair(result)
            made.append(_own(y))
        else:
            return state, _stacked(made[::-1] if reverse else made) if made else _nothing(f, state, items, xs)
    assert recorder is not None
    return _traced_scan(recorder, f, init, xs, count, reverse)


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """Return ``true_fun(*operands)`` if ``pred`` is true, else ``false_fun(*operands)``.

    With a traced ``pred`` both functions are traced, and the program computes one of them. Their results must have the
    same structure, shapes and element types; `InputError` names the one that differs.

    >>> shardc.cond(True, lambda u: u + 1, lambda u: u, 1.0)
    2.0
    """
    if not isinstance(pred, Tracer):
        return true_fun(*operands) if pred else false_fun(*operands)
    return run_conditional(pred, true_fun, false_fun, operands)


def _recorder(value: Any) -> Trace | None:
    """The recorder of what is traced in a nested value."""
    leaves, _ = flatten(value)
    for leaf in leaves:
        if type(leaf).__module__.split(".")[0] in ("jax", "jaxlib"):
            raise InputError(
                "shardc's loops and branches take NumPy functions, but this is a JAX value",
                fix="use jax.lax.while_loop, fori_loop, scan and cond in JAX functions",
            )
    return find_recorder(leaves)


def _check_bounds(**bounds: Any) -> None:
    for name, bound in bounds.items():
        given = bound.aval.dtype.numpy if isinstance(bound, Tracer) else np.asarray(bound).dtype
        if np.shape(bound) != () or np.dtype(given).kind not in "iub":
            told = f"of {given}" if np.shape(bound) == () else f"an array of shape {np.shape(bound)}"
            raise InputError(
                f"{name} of fori_loop is {told}, not an integer",
                where=Location(*user_line()),
                fix=f"pass int({name}), or {name}.astype(np.int64) for a traced value",
            )


def _own(value: Any) -> Any:
    """The value with copies of its arrays, which functions may then change."""
    leaves, tree = flatten(value)
    return unflatten(tree, iter([x.copy() if isinstance(x, np.ndarray) else x for x in leaves]))


def _names(state: Any, root: str) -> list[str]:
    return list(flatten(state)[1].names(root))


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise InputError(
            f"the function of scan returns {kind_text(result)}, not a pair",
            where=Location(*user_line()),
            fix="return a pair: (carry, y)",
        )
    return result


def _length(items: list[Any], names: Iterable[str], length: int | None) -> int:
    """How often a scan runs."""
    known = {} if length is None else {"length": int(length)}
    for x, name in zip(items, names, strict=True):
        if not np.ndim(x):
            raise InputError(
                f"{name} of scan has no first dimension to iterate over",
                where=Location(*user_line()),
                fix="pass arrays, or None with length=",
            )
        known[name] = np.shape(x)[0]
    if len(set(known.values())) != 1:
        told = ", ".join(f"{name} says {n}" for name, n in known.items()) or "neither xs nor length= is given"
        raise InputError(
            f"the number of steps of scan is unclear: {told}",
            where=Location(*user_line()),
            fix="make all first dimensions (and length=) equal",
        )
    return next(iter(known.values()))


def _stacked(made: list[Any]) -> Any:
    columns = [flatten(y) for y in made]
    return unflatten(columns[0][1], iter([np.stack(c) for c in zip(*(leaves for leaves, _ in columns), strict=True)]))


def _nothing(f: Any, state: Any, items: list[Any], xs: Any) -> Any:
    """The results of a scan that never runs: of the shapes that they would have."""
    rows = [ShapeDtype(np.shape(x)[1:], np.asarray(x).dtype) for x in items]
    traced = trace_function(f, (state, unflatten(flatten(xs)[1], iter(rows))))
    _, y = _pair(traced.unflatten(traced.module.results))
    leaves, tree = flatten(y)
    return unflatten(tree, iter([np.zeros((0, *s.dims), s.dtype.numpy) for s in leaves]))


def _traced_scan(recorder: Trace, f: Any, init: Any, xs: Any, count: int, reverse: bool) -> tuple[Any, Any]:
    """A loop over positions, that writes its results into arrays which begin as zeros."""
    items, tree = flatten(xs)
    rows = [lift(recorder, x) for x in items]
    names = _names(init, "init")

    def take(k: Tracer) -> Any:
        return unflatten(tree, iter([_row(x, k) for x in rows]))

    first = constant(recorder, 0, np.int64)
    begin, (_, result) = settle(recorder, "scan", init, lambda c: _pair(f(c, take(first))), names, lambda r: r[0])
    ys, out = flatten(result)
    buffers = [full(recorder, (count, *s.shape), 0, s.dtype) for s in leaves_of_state(recorder, ys, out.names("y"))]

    def body(state: Any) -> Any:
        k, carry, written = state
        place = count - 1 - k if reverse else k
        carry, y = _pair(f(carry, take(place)))
        values = leaves_of_state(recorder, flatten(y)[0], out.names("y"))
        return k + 1, carry, [_with_row(b, place, v) for b, v in zip(written, values, strict=True)]

    labels = ["k", *names, *out.names("y")]
    made = run_while(recorder, "scan", (0, begin, buffers), lambda s: s[0] < count, body, labels)
    return made[1], unflatten(out, iter(made[2]))


def _row(x: Tracer, k: Tracer) -> Tracer:
    starts = [k, *[constant(x, 0, k.dtype)] * (x.ndim - 1)]
    part = emit("dynamic-slice", x, *starts, dynamic_slice_sizes=(1, *x.shape[1:]))
    return reshape(part, x.shape[1:])


def _with_row(x: Tracer, k: Tracer, value: Tracer) -> Tracer:
    starts = [k, *[constant(x, 0, k.dtype)] * (x.ndim - 1)]
    return emit("dynamic-update-slice", x, reshape(value, (1, *x.shape[1:])), *starts)
