"""Science of the comparison with XLA's partitioner: stencils, solvers, transforms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from partitioning_programs import Made, Places, Program

__all__ = ["SCIENCE"]


# -- stencils ---------------------------------------------------------------------------------------------------------


def _advection(at: Places) -> Made:
    """One periodic dimension, third-order upwind differences."""

    def f(u: Any) -> Any:
        def one(_: Any, u: Any) -> Any:
            d = 2 * jnp.roll(u, -1) + 3 * u - 6 * jnp.roll(u, 1) + jnp.roll(u, 2)
            return u - 0.05 * d

        return lax.fori_loop(0, 8, one, u)

    return jax.jit(f, out_shardings=at("x")), (at.array((1024,), "x"),)


def _cube(at: Places) -> Made:
    """Heat in three dimensions, fixed borders by padding, split in all three."""

    def f(u: Any) -> Any:
        def one(u: Any, _: Any) -> Any:
            p = jnp.pad(u, 1)
            around = p[2:, 1:-1, 1:-1] + p[:-2, 1:-1, 1:-1] + p[1:-1, 2:, 1:-1] + p[1:-1, :-2, 1:-1]
            return u + 0.1 * (around + p[1:-1, 1:-1, 2:] + p[1:-1, 1:-1, :-2] - 6 * u), None

        return lax.scan(one, u, None, length=4)[0]

    return jax.jit(f, out_shardings=at("x", "y", "z")), (at.array((32, 32, 32), "x", "y", "z"),)


def _convolved(at: Places) -> Made:
    """A stencil written as a convolution with periodic padding."""

    def f(u: Any) -> Any:
        kernel = jnp.array([[0.05, 0.2, 0.05], [0.2, 0.0, 0.2], [0.05, 0.2, 0.05]])[None, None]

        def one(_: Any, u: Any) -> Any:
            p = jnp.pad(u, 1, mode="wrap")
            return lax.conv_general_dilated(p[None, None], kernel, (1, 1), "VALID")[0, 0]

        return lax.fori_loop(0, 4, one, u)

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((64, 64), "x", "y"),)


def _waves(at: Places) -> Made:
    """The wave equation to fourth order: two rows from each neighbour; the border reflects."""

    def f(u: Any, old: Any) -> Any:
        def second(u: Any, axis: int) -> Any:
            p = jnp.pad(u, [(2, 2) if a == axis else (0, 0) for a in range(2)], mode="edge")
            n = u.shape[axis]
            a, b, c, d, e = (lax.slice_in_dim(p, k, k + n, axis=axis) for k in range(5))
            return (-a + 16 * b - 30 * c + 16 * d - e) / 12

        def one(_: Any, c: Any) -> Any:
            u, old = c
            return 2 * u - old + 0.1 * (second(u, 0) + second(u, 1)), u

        return lax.fori_loop(0, 4, one, (u, old))[0]

    grid = at.array((64, 48), "x", "y")
    return jax.jit(f, out_shardings=at("x", "y")), (grid, grid)


def _shallow_water(at: Places) -> Made:
    """Three fields on a torus split both ways."""

    def f(h: Any, u: Any, v: Any) -> Any:
        def dx(a: Any) -> Any:
            return 0.5 * (jnp.roll(a, -1, 0) - jnp.roll(a, 1, 0))

        def dy(a: Any) -> Any:
            return 0.5 * (jnp.roll(a, -1, 1) - jnp.roll(a, 1, 1))

        def one(_: Any, c: Any) -> Any:
            h, u, v = c
            u, v = u - 0.1 * dx(h), v - 0.1 * dy(h)
            return h - 0.1 * (dx(u * (1 + h)) + dy(v * (1 + h))), u, v

        return lax.fori_loop(0, 4, one, (h, u, v))

    grid = at.array((48, 64), "x", "y")
    return jax.jit(f, out_shardings=(at("x", "y"),) * 3), (grid, grid, grid)


def _maxwell(at: Places) -> Made:
    """Staggered fields updated in place on slices."""

    def f(e: Any, bx: Any, by: Any) -> Any:
        def one(_: Any, c: Any) -> Any:
            e, bx, by = c
            bx = bx.at[:, :-1].add(-0.5 * (e[:, 1:] - e[:, :-1]))
            by = by.at[:-1].add(0.5 * (e[1:] - e[:-1]))
            curl = by[1:-1, 1:-1] - by[:-2, 1:-1] - bx[1:-1, 1:-1] + bx[1:-1, :-2]
            return e.at[1:-1, 1:-1].add(0.5 * curl), bx, by

        return lax.fori_loop(0, 4, one, (e, bx, by))

    grid = at.array((64, 64), "x", "y")
    return jax.jit(f, out_shardings=(at("x", "y"),) * 3), (grid, grid, grid)


def _spins(at: Places) -> Made:
    """Checkerboard updates of spins with random numbers."""

    def f(s: Any, key: Any) -> Any:
        rows, columns = jnp.arange(32)[:, None], jnp.arange(32)[None]

        def one(k: Any, s: Any) -> Any:
            for colour in (0, 1):
                around = jnp.roll(s, 1, 0) + jnp.roll(s, -1, 0) + jnp.roll(s, 1, 1) + jnp.roll(s, -1, 1)
                draw = jax.random.uniform(jax.random.fold_in(key, 2 * k + colour), s.shape)
                flip = (draw < jnp.exp(-0.8 * s * around)) & ((rows + columns) % 2 == colour)
                s = jnp.where(flip, -s, s)
            return s

        return lax.fori_loop(0, 3, one, jnp.sign(s))

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((32, 32), "x", "y"), at.array((2,), dtype=np.uint32))


# -- solvers ----------------------------------------------------------------------------------------------------------


def _jacobi(at: Places) -> Made:
    """Until the residual is small: the loop's condition reads a norm over all devices."""

    def f(a: Any, b: Any) -> Any:
        diagonal = 40.0

        def more(c: Any) -> Any:
            return (c[1] > 1e-3) & (c[2] < 10)

        def one(c: Any) -> Any:
            x, _, k = c
            r = b - a @ x - diagonal * x
            return x + r / diagonal, jnp.sqrt(jnp.sum(r * r)), k + 1

        return lax.while_loop(more, one, (jnp.zeros_like(b), jnp.float32(1), 0))[0]

    return jax.jit(f, out_shardings=at("x")), (at.array((128, 128), "x", "y"), at.array((128,), "x"))


def _multigrid(at: Places) -> Made:
    """One V-cycle of three levels: smoothing, restriction by averages, prolongation by repetition."""

    def f(b: Any) -> Any:
        def apply(u: Any) -> Any:
            p = jnp.pad(u, 1)
            return 4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

        def cycle(u: Any, b: Any, level: int) -> Any:
            u = u + 0.2 * (b - apply(u))
            if level:
                n, m = u.shape
                r = (b - apply(u)).reshape(n // 2, 2, m // 2, 2).mean((1, 3))
                e = cycle(jnp.zeros_like(r), 4 * r, level - 1)
                u = u + jnp.repeat(jnp.repeat(e, 2, 0), 2, 1)
            return u + 0.2 * (b - apply(u))

        return cycle(jnp.zeros_like(b), b, 2)

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((64, 64), "x", "y"),)


def _arnoldi(at: Places) -> Made:
    """The basis of GMRES on a matrix split by rows, then a small least squares by normal equations."""

    def f(a: Any, b: Any) -> Any:
        def one(k: Any, c: Any) -> Any:
            basis, h = c
            w = a @ basis[k]
            found = basis @ w
            w = w - found @ basis
            size = jnp.sqrt(w @ w)
            h = h.at[:, k].set(found).at[k + 1, k].set(size)
            return basis.at[k + 1].set(w / size), h

        norm = jnp.sqrt(b @ b)
        basis = jnp.zeros((7, b.shape[0])).at[0].set(b / norm)
        basis, h = lax.fori_loop(0, 6, one, (basis, jnp.zeros((7, 6))))
        y = jnp.linalg.solve(h.T @ h + 1e-3 * jnp.eye(6), h.T @ (norm * jnp.eye(7)[0]))
        return y @ basis[:6]

    return jax.jit(f, out_shardings=at("x")), (at.array((128, 128), "x"), at.array((128,), "x"))


def _kernel_ridge(at: Places) -> Made:
    """A Gaussian process: kernel matrix, Cholesky, predictions."""

    def f(x: Any, y: Any, new: Any) -> Any:
        def kernel(a: Any, b: Any) -> Any:
            return jnp.exp(-0.5 * jnp.sum((a[:, None] - b[None]) ** 2, -1))

        factor = jnp.linalg.cholesky(kernel(x, x) + jnp.eye(64))
        half = jax.scipy.linalg.solve_triangular(factor, kernel(x, new), lower=True)
        return half.T @ jax.scipy.linalg.solve_triangular(factor, y, lower=True), 1 - jnp.sum(half * half, 0)

    args = (at.array((64, 4), "x"), at.array((64,), "x"), at.array((128, 4), "x"))
    return jax.jit(f, out_shardings=(at("x"), at("x"))), args


def _newton(at: Places) -> Made:
    """Logistic regression by Newton's method, examples split."""

    def f(x: Any, y: Any) -> Any:
        def one(_: Any, w: Any) -> Any:
            p = jax.nn.sigmoid(x @ w)
            hessian = (x * (p * (1 - p))[:, None]).T @ x + 0.1 * jnp.eye(8)
            return w - jnp.linalg.solve(hessian, x.T @ (p - y))

        return lax.fori_loop(0, 4, one, jnp.zeros(8))

    return jax.jit(f, out_shardings=at()), (at.array((512, 8), "x"), at.array((512,), "x"))


def _many_solves(at: Places) -> Made:
    """Small systems, a batch split over all devices."""

    def f(a: Any, b: Any) -> Any:
        m = a @ jnp.swapaxes(a, 1, 2) + jnp.eye(6)
        return jnp.linalg.solve(m, b[..., None])[..., 0], jnp.linalg.slogdet(m)[1].sum(), jnp.linalg.inv(m)

    args = (at.array((32, 6, 6), ("x", "y")), at.array((32, 6), ("x", "y")))
    return jax.jit(f, out_shardings=(at(("x", "y")), at(), at(("x", "y")))), args


def _principal(at: Places) -> Made:
    """Principal components by power iteration on centred data, rows split."""

    def f(x: Any, v: Any) -> Any:
        x = x - x.mean(0)

        def one(v: Any, _: Any) -> Any:
            v = x.T @ (x @ v)
            return v / jnp.linalg.norm(v, axis=0), None

        v = lax.scan(one, v, None, length=4)[0]
        return v, x @ v

    return jax.jit(f, out_shardings=(at(), at("x"))), (at.array((256, 32), "x"), at.array((32, 3)))


def _chain(at: Places) -> Made:
    """A chain of products whose layouts disagree."""

    args = (
        at.array((64, 128), "x", "y"),
        at.array((128, 32), "x", "y"),
        at.array((32, 96), "y", "x"),
        at.array((96, 64), None, "x"),
    )
    return jax.jit(lambda a, b, c, d: a @ b @ c @ d, out_shardings=at("x", "y")), args


# -- transforms -------------------------------------------------------------------------------------------------------


def _poisson(at: Places) -> Made:
    """A solver by real FFTs in three dimensions, slabs."""

    def f(u: Any) -> Any:
        k = [jnp.fft.fftfreq(32) ** 2, jnp.fft.fftfreq(32) ** 2, jnp.fft.rfftfreq(32) ** 2]
        spectrum = jnp.fft.rfftn(u)
        spectrum = spectrum / (k[0][:, None, None] + k[1][None, :, None] + k[2][None, None] + 1)
        return jnp.fft.irfftn(spectrum, u.shape)

    return jax.jit(f, out_shardings=at("x")), (at.array((32, 32, 32), "x"),)


def _vorticity(at: Places) -> Made:
    """A spectral step of flow in two dimensions, in a loop; pencils over both axes."""

    def f(w: Any) -> Any:
        kx, ky = jnp.fft.fftfreq(64)[:, None] * 64, jnp.fft.fftfreq(64)[None] * 64
        square = jnp.maximum(kx**2 + ky**2, 1)

        def one(_: Any, w: Any) -> Any:
            s = jnp.fft.fft2(w)
            u, v = (jnp.real(jnp.fft.ifft2(a * s / square)) for a in (1j * ky, -1j * kx))
            dx, dy = (jnp.real(jnp.fft.ifft2(1j * a * s)) for a in (kx, ky))
            return w - 0.01 * (u * dx + v * dy)

        return lax.fori_loop(0, 2, one, w)

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((64, 64), "x", "y"),)


def _filtered(at: Places) -> Made:
    """Spectra of a batch of signals, the batch split: nothing need move."""

    def f(x: Any) -> Any:
        s = jnp.fft.rfft(x * jnp.hanning(128))
        return jnp.fft.irfft(jnp.where(jnp.abs(s) > 1, s, 0), 128), jnp.mean(jnp.abs(s) ** 2, 0)

    return jax.jit(f, out_shardings=(at("x"), at())), (at.array((64, 128), "x"),)


_FOUR, _EIGHT = {"x": 4}, {"x": 8}
_TWO_FOUR, _FOUR_TWO = {"x": 2, "y": 4}, {"x": 4, "y": 2}
_CUBE = {"x": 2, "y": 2, "z": 2}

SCIENCE: tuple[Program, ...] = (
    Program("advection on a ring", _EIGHT, _advection),
    Program("heat in three dimensions", _CUBE, _cube),
    Program("stencil by convolution, periodic", _FOUR_TWO, _convolved),
    Program("waves to fourth order", _FOUR_TWO, _waves),
    Program("shallow water on a torus", _TWO_FOUR, _shallow_water),
    Program("Maxwell's equations in place", _FOUR_TWO, _maxwell),
    Program("spins on a checkerboard", _TWO_FOUR, _spins),
    Program("Jacobi until small", _FOUR_TWO, _jacobi),
    Program("multigrid", _TWO_FOUR, _multigrid),
    Program("Arnoldi and least squares", _FOUR, _arnoldi),
    Program("Gaussian process by Cholesky", _EIGHT, _kernel_ridge),
    Program("Newton's method, logistic", _FOUR, _newton),
    Program("small linear systems", _TWO_FOUR, _many_solves),
    Program("principal components", _EIGHT, _principal),
    Program("matrix chain", _FOUR_TWO, _chain),
    Program("Poisson solver by real FFT, slabs", _FOUR, _poisson),
    Program("vorticity, spectral", _TWO_FOUR, _vorticity),
    Program("filtered signals", _EIGHT, _filtered),
)
