"""Loops of NumPy programs: what Python loops of many steps take to trace, partition and compile, how much program is
left of them; iterations of a loop to a tolerance; and what alternating directions send.

Seconds are of the processor, of all threads of a process or rank; those of iterations are wall times too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import shardc
from shardc import Mesh, P
from shardc.hlo.text.printer import print_module

HEAD = ("program", "to trace", "to partition", "to compile", "instructions", "text of the program", "goal")
ITERATIONS_HEAD = ("512x512 float64", "devices", "iterations", "an iteration, wall", "processor", "goal")
BYTES_HEAD = ("alternating directions, 256x256 float64 on 2 devices", "sent, bytes", "goal")
ROUNDS = 5


def heat(u: Any) -> Any:
    for _ in range(200):
        u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return u


def thomas(a: Any, b: Any, c: Any, d: Any) -> Any:
    """A tridiagonal system by elimination and substitution, as textbooks have it."""
    n = len(d)
    c, d = c.copy(), d.copy()
    c[0] = c[0] / b[0]
    d[0] = d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * c[i - 1]
        c[i] = c[i] / m
        d[i] = (d[i] - a[i] * d[i - 1]) / m
    x = np.zeros_like(d)
    x[n - 1] = d[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = d[i] - c[i] * x[i + 1]
    return x


def thomas_over_lists(a: Any, b: Any, c: Any, d: Any) -> Any:
    n = len(d)
    upper, right = [c[0] / b[0]], [d[0] / b[0]]
    for i in range(1, n):
        m = b[i] - a[i] * upper[i - 1]
        upper.append(c[i] / m)
        right.append((d[i] - a[i] * right[i - 1]) / m)
    x = [right[n - 1]] * n
    for i in range(n - 2, -1, -1):
        x[i] = right[i] - upper[i] * x[i + 1]
    return np.stack(x)


def conjugate_gradients(b: Any, tolerance: float) -> Any:
    """-Laplace(x) = b, zero outside of the grid; the solution, and the number of iterations."""

    def laplacian(p: Any) -> Any:
        q = 4 * p
        q[1:] -= p[:-1]
        q[:-1] -= p[1:]
        q[:, 1:] -= p[:, :-1]
        q[:, :-1] -= p[:, 1:]
        return q

    def improve(state: Any) -> Any:
        x, r, p, rr, count = state
        q = laplacian(p)
        alpha = rr / np.vdot(p, q)
        x, r = x + alpha * p, r - alpha * q
        new = np.vdot(r, r)
        return x, r, r + new / rr * p, new, count + 1

    start = np.zeros_like(b), b, b, np.vdot(b, b), 0
    x, _, _, _, count = shardc.while_loop(lambda state: state[3] > tolerance**2, improve, start)
    return x, count


def alternating_directions(u: Any, rows: Any, columns: Any) -> Any:
    return np.linalg.solve(columns, np.linalg.solve(rows, u).T).T


def _random(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape)


_TRIDIAGONAL = (_random(1024), 4 + _random(1024), _random(1024), _random(1024))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "200 steps of heat, 1024x1024, 2 devices": (heat, (_random(1024, 1024),), ""),
    "Thomas, 1024 unknowns": (thomas, _TRIDIAGONAL, "2 s"),
    "Thomas over lists, 1024 unknowns": (thomas_over_lists, _TRIDIAGONAL, "2 s"),
}


def rows() -> list[tuple[str, ...]]:
    """(program, seconds of three stages, instructions, bytes of text, goal) as text; nothing is in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHARDC_CACHE_DIR"] = folder
        return [_row(name) for name in PROGRAMS]


def _row(name: str) -> tuple[str, ...]:
    function, args, goal = PROGRAMS[name]
    split = "devices" in name
    begin = time.process_time()
    program = shardc.trace(function, *args, mesh=Mesh({"x": 2 if split else 1}))
    traced = time.process_time()
    partitioned = program.annotate({"u": P("x")} if split else {}).partition()
    module = partitioned.module
    parted = time.process_time()
    compiled = partitioned.compile("cpu")
    done = time.process_time()
    np.testing.assert_allclose(np.asarray(compiled(*args)), function(*(a.copy() for a in args)), rtol=1e-9)
    times = (f"{b - a:.2f} s" for a, b in ((begin, traced), (traced, parted), (parted, done)))
    instructions, text = sum(1 for _ in module.instructions()), print_module(module)
    return (name, *times, str(instructions), f"{len(text) / 1e3:.0f} kB", goal)


def an_iteration(devices: int) -> tuple[int, float, float]:
    """How many iterations it takes, and the medians of the seconds of one: wall, and of this process."""
    b = np.sin(np.arange(512 * 512) * 0.7).reshape(512, 512)
    program = shardc.trace(conjugate_gradients, b, 1e-6, mesh=Mesh({"x": devices})).annotate({"b": P("x")})
    run = program.partition().compile("cpu")
    placed = run.driver.put(0, b), run.driver.put(1, np.asarray(1e-6))
    count = int(run(*placed)[1])
    times = []
    for _ in range(ROUNDS):
        begin, used = time.perf_counter(), time.process_time()
        run(*placed)
        times.append((time.perf_counter() - begin, time.process_time() - used))
    wall, processor = (statistics.median(t[k] for t in times) / count for k in (0, 1))
    return count, wall, processor


def iterations() -> list[tuple[str, ...]]:
    """(what, devices, iterations, two times, goal) as text: each case in a process or job of its own."""
    out = []
    for devices, ranks in ((1, False), (2, False), (2, True)):
        job = ["-m", "shardc", "mpiexec", "-n", str(devices), sys.executable] if ranks else []
        command = [sys.executable, *job, __file__, "--iterations", str(devices)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        count, *seconds = done.stdout.split()
        where = f"{devices} ranks" if ranks else f"{devices} in a process"
        times = (f"{float(s) * 1e3:.3f} ms" for s in seconds)
        out.append(("conjugate gradients to 1e-6", where, count, *times, "0.35 ms" if ranks else ""))
    return out


def bytes_sent() -> list[tuple[str, ...]]:
    """(program, bytes, goal) as text."""
    args = _random(256, 256), *(np.eye(256) * 4 + _random(256, 256) / 256 for _ in range(2))
    out: list[tuple[str, ...]] = []
    for name, asked in (("by linalg.solve, rows in and out", P("x")), ("by linalg.solve, rows in", None)):
        program = shardc.trace(
            alternating_directions,
            *args,
            mesh=Mesh({"x": 2}),
            in_shardings=(P("x"), None, None),
            out_shardings=asked,
        )
        out.append((name, f"{program.partition().report()['wire_bytes']:,}", "262,144"))
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=0, metavar="DEVICES", help="print those of one case")
    given = parser.parse_args()
    if given.iterations:
        found = an_iteration(given.iterations)
        if shardc.process_index() == 0:
            print(*found)
    else:
        for table in (bytes_sent, rows, iterations):
            for row in table():
                print(*row, sep="  ", flush=True)
