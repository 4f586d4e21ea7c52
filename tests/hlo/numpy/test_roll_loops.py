"""Python loops of equal iterations become loops: the same bits as unrolled, few instructions, source lines kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardc import Mesh, P, trace
from shardc.frontends.numpy_functions import shard
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.numpy import trace as tracing
from shardc.hlo.numpy.trace import trace_function
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.transforms.roll_loops import RollLoops
from shardc.hlo.verify import verify
from tests.hlo.numpy.trace_support import compile_and_run

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4))
SMALL = RollLoops(times=3, instructions=6, fused=1)


def heat(u: Any) -> Any:
    for _ in range(60):
        u = u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) - 2 * u)
    return u


def leapfrog(u: Any) -> Any:
    """Two steps back; both are returned."""
    before, now = u, u * 1.01
    for _ in range(40):
        before, now = now, 2 * now - before + 0.1 * (np.roll(now, 1, 0) + np.roll(now, -1, 0) - 2 * now)
    return before, now


def recurrence(x: Any) -> Any:
    """Forwards and backwards along an array, in place, with numbers that count."""
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.5 * y[i - 1] + x[i] * i
    for i in range(len(x) - 2, -1, -1):
        y[i] += 0.25 * y[i + 1]
    return y


def collected(x: Any) -> Any:
    """What every step gives, what some give, and times that are no line of floats."""
    rows, some, t, dt = [], [], 0.0, 0.1
    for k in range(30):
        t += dt
        x = np.tanh(x + np.sin(t)) @ np.eye(4)
        rows.append(x[0])
        if k % 10 == 3:
            some.append(x.sum())
    return np.stack(rows), np.stack(some), x


def lists(x: Any) -> Any:
    """Thomas' algorithm over Python lists, which the second loop reads from their ends."""
    n = len(x)
    c, d, y = [0.5 / (4 + x[0])], [x[0]], [x[0]] * n
    for i in range(1, n):
        m = 4 + x[i] - 0.5 * c[i - 1]
        c.append(0.5 / m)
        d.append((x[i] - 0.5 * d[i - 1]) / m)
    y[n - 1] = d[n - 1]
    for i in range(n - 2, -1, -1):
        y[i] = d[i] - c[i] * y[i + 1]
    return np.stack(y)


def last_dead(x: Any) -> Any:
    """The last iteration makes only half of what the others make."""
    r, p = x, x
    for _ in range(25):
        alpha = np.vdot(r, r) / np.vdot(p, 3 * p)
        r = r - alpha * p
        p = r + np.vdot(r, r) * p
    return r


def alternating(x: Any) -> Any:
    """Two arrays take turns; a table of constants changes."""
    a, b = x, x[::-1]
    table = np.random.default_rng(5).normal(size=(20, 4))
    for k in range(20):
        x = np.cumsum(x, 0) * 0.1 + a + table[k]
        a, b = b, a
    return x


def nested(x: Any) -> Any:
    for k in range(12):
        for _ in range(10):
            x = 0.5 * x + 0.1 * np.roll(x, k % 3, 0) + 0.1 * np.roll(x, -1, 0)
        x = x / np.abs(x).max()
    return x


def shifted(x: Any) -> Any:
    """Slices with strides, and pads, that move."""
    for k in range(9):
        x = x + np.pad(x[k : k + 3 : 2], ((k, 10 - k), (0, 0)))
    return x


PROGRAMS: list[Callable[[Any], Any]] = [
    heat, leapfrog, recurrence, collected, lists, last_dead, alternating, nested, shifted,
]  # fmt: skip


def both(function: Callable[..., Any], args: list[Any], rolling: RollLoops) -> tuple[Module, Module]:
    """The module as traced, and rolled."""
    traced = tracing._trace_of(tracing._record(function, args, {}, ()))
    entry, _ = rolling.roll(traced.module.entry)
    module = tracing.keep_reachable(traced.module, entry)
    verify(module)
    return traced.module, module


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_rolled_programs_have_the_same_bits(function: Callable[..., Any]) -> None:
    with np.errstate(all="ignore"):
        before, after = both(function, [X], SMALL)
        wanted, got = (evaluate(m, [X]) for m in (before, after))
    assert any(i.opcode == "while" for i in after.instructions())
    assert len(list(after.instructions())) < len(list(before.instructions()))
    for w, g in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))
    again = read_hlo(print_module(after))
    for w, g in zip(wanted, evaluate(again, [X]), strict=True):
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


def relaxed(f: Any, steps: int = 1) -> Any:
    """Parts of an array, each by itself out of what all have in common: a lattice's collisions."""
    for _ in range(steps):
        mean = f.sum(0) / len(f)
        square = mean * mean
        f = np.stack([f[i] + 0.6 * (i * mean * (1 + 3 * mean - 1.5 * square + i) - f[i]) for i in range(len(f))])
    return f


def test_parts_of_large_arrays_are_one_kernel() -> None:
    """A loop over them would read what they have in common in each iteration; small arrays and many parts are rolled,
    and so are steps around them."""

    def loops(function: Callable[..., Any], *dims: int) -> int:
        x = np.random.default_rng(0).random(dims)
        rolling = RollLoops(instructions=200)
        before, after = both(function, [x], rolling)
        if x.nbytes < 1 << 22:
            np.testing.assert_array_equal(np.asarray(evaluate(after, [x])[0]), np.asarray(evaluate(before, [x])[0]))
        return sum(i.opcode == "while" for i in after.instructions())

    assert loops(relaxed, 19, 128, 64) == 0
    assert loops(relaxed, 19, 16, 8) == 1
    assert loops(relaxed, 190, 128, 64) == 1
    assert loops(lambda f: relaxed(f, 10), 19, 128, 64) == 1


def test_a_stencil_of_many_points_is_one_kernel() -> None:
    """Parts that are added up are read once; where sums are read besides, or scaled, iterations stay a loop."""

    def box(u: Any) -> Any:
        n = len(u) - 14
        return sum(u[i : i + n, j : j + n] for i in range(15) for j in range(15))

    def running(u: Any) -> Any:
        sums = [u[0]]
        for row in range(1, 120):
            sums.append(sums[-1] + u[row])
        return np.stack(sums)

    def decaying(u: Any) -> Any:
        h = u[0]
        for row in range(1, 120):
            h = 0.5 * h + u[row]
        return h

    rolling = RollLoops(instructions=200, large=1 << 12)
    for function, loops in ((box, 0), (running, 1), (decaying, 1)):
        x = np.random.default_rng(0).random((128, 512) if function is not box else (64, 64))
        before, after = both(function, [x], rolling)
        np.testing.assert_array_equal(np.asarray(evaluate(after, [x])[0]), np.asarray(evaluate(before, [x])[0]))
        assert sum(i.opcode == "while" for i in after.instructions()) == loops, function


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_rolled_programs_compile(function: Callable[..., Any]) -> None:
    before, after = both(function, [X], SMALL)
    traced = tracing._trace_of(tracing._record(function, [X], {}, ()))
    wanted = evaluate(before, [X])
    got = compile_and_run(tracing.TracedFunction(after, traced.in_tree, traced.out_tree), [X])
    for w, g in zip(wanted, got, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-9, atol=1e-12)


OPERATIONS: list[Callable[..., Any]] = [
    lambda u, v, x, k, older, state: 0.5 * u + 0.25 * v,
    lambda u, v, x, k, older, state: np.roll(u, 1, 0) - v * 0.5,
    lambda u, v, x, k, older, state: u * 0.9 + k,
    lambda u, v, x, k, older, state: u + x[k % len(x)] * 0.1,
    lambda u, v, x, k, older, state: np.where(u > v, u * 0.5, older[0]),
    lambda u, v, x, k, older, state: v @ np.eye(4) * (0.1 * k),
    lambda u, v, x, k, older, state: u + x[k // 3 : k // 3 + 2].sum(0) * 0.1,
    lambda u, v, x, k, older, state: np.maximum(u - u.mean(), v * 0.5),
    lambda u, v, x, k, older, state: (u + (state[0] if k % 2 else state[1])) * 0.5,
]


def random_program(seed: int) -> Callable[[Any], Any]:
    """A loop over a few arrays by operations that a seed chooses: carried, kept, shifted, from steps before."""
    rng = random.Random(seed)
    steps, count = rng.randint(4, 14), rng.randint(2, 7)
    plan = [(rng.randrange(9), rng.randrange(5), rng.randrange(5), rng.randrange(5)) for _ in range(count)]
    keep, back, peel = rng.randrange(4), rng.randrange(1, 4), rng.randrange(3)

    def run(x: Any) -> Any:
        state = [x, x * 0.5, x[::-1], x + 1, x]
        older = [x] * back
        kept = []
        for k in range(steps):
            for kind, a, b, c in plan:
                u, v = state[a], state[b]
                state[c] = OPERATIONS[kind](u, v, x, k, older, state)
            if kind == 7:
                state[c] = state[c].copy()
                state[c][k % len(x)] = state[a][0]
            older = [*older[1:], state[plan[0][3]]]
            if keep == 1 or (keep == 2 and k % 2) or (keep == 3 and k == steps // 2):
                kept.append(state[plan[-1][3]][0])
            if k == steps - 1 and peel == 2:
                state[0] = state[1] * state[2]
        return [state[:3], older, np.stack(kept) if kept else x]

    return run


SEEDS = range(60)


@pytest.mark.parametrize("part", range(4))
def test_random_loops_have_the_same_bits(part: int) -> None:
    rolled = 0
    for seed in [s for s in SEEDS if s % 4 == part]:
        with np.errstate(all="ignore"):
            before, after = both(random_program(seed), [X], RollLoops(times=2, instructions=4, fused=1 + seed % 3 * 10))
            wanted, got = (evaluate(m, [X]) for m in (before, after))
        rolled += any(i.opcode == "while" for i in after.instructions())
        for w, g in zip(wanted, got, strict=True):
            np.testing.assert_array_equal(np.asarray(g), np.asarray(w), err_msg=f"seed {seed}")
    assert rolled > 5


def test_long_loops_are_rolled_and_keep_their_lines() -> None:
    def steps(u: Any) -> Any:
        for _ in range(200):
            u = heat_step(u)
        return u

    module = trace_function(steps, [X]).module
    inside = [i for c in module.computations if c is not module.entry for i in c if i.opcode == "multiply"]
    line = heat_step.__code__.co_firstlineno + 1
    assert len(list(module.instructions())) < 60 and len(inside) == 2
    assert {i.metadata.source_line for i in inside if i.metadata} == {line}


def test_lists_are_arrays_to_later_loops() -> None:
    module = trace_function(lists, [np.ones((300, 2))]).module
    loops = [i for i in module.entry if i.opcode == "while"]
    assert len(loops) == 2 and len(list(module.instructions())) < 150


def heat_step(u: Any) -> Any:
    return u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) - 2 * u)


def test_what_fuses_or_is_short_stays() -> None:
    short = trace_function(lambda u: [u := heat_step(u) for _ in range(10)][-1], [X]).module
    assert not any(i.opcode == "while" for i in short.instructions())
    plain = trace_function(damped, [X]).module
    bodies = [i.attrs["body"] for i in plain.instructions() if i.opcode == "while"]
    assert len(bodies) == 1 and sum(i.opcode == "tanh" for i in bodies[0]) > 8  # Several iterations at once.


def damped(x: Any) -> Any:
    for _ in range(300):
        x = 0.9 * x + 0.1 * np.tanh(x)
    return x


def test_constraints_inside_are_kept() -> None:
    def steps(u: Any) -> Any:
        for _ in range(100):
            u = shard(heat_step(u), P("x"))
        return u

    program = trace(steps, X, mesh=Mesh({"x": 2}))
    assert sum(i.opcode == "custom-call" for i in program.module.instructions()) == 1
    partitioned = program.partition()
    assert partitioned.report()["wire_bytes"] <= 100 * 2 * X[0].nbytes + X.nbytes
    np.testing.assert_allclose(np.asarray(partitioned.compile("cpu")(X)), steps(X), rtol=1e-12)
