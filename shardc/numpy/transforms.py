"""`jit` of NumPy functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from shardc.compiler.targets import check_target
from shardc.stages.jit_numpy import NumpyJit

__all__ = ["jit"]


def jit(
    function: Callable[..., Any] | None = None,
    *,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Iterable[int] = (),
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    target: str = "cpu",
) -> Any:
    """A NumPy function as one program over a mesh, compiled at its first call for each signature, without JAX.

    Options as `shardc.jit`'s; without ``mesh`` the mesh of the arguments counts. Results are `shardc.Array`s, element
    types NumPy's. A generator of `shardc.numpy.random` among the arguments goes on from call to call. Also a decorator:
    ``@np.jit``. Raises what `shardc.trace` raises.
    """
    if function is None:
        return functools.partial(
            jit,
            mesh=mesh,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            donate_argnums=donate_argnums,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            target=target,
        )
    check_target(target)
    made = NumpyJit(
        function,
        mesh,
        in_shardings,
        out_shardings,
        _numbers(donate_argnums),
        _numbers(static_argnums),
        frozenset((static_argnames,) if isinstance(static_argnames, str) else static_argnames),
        target,
    )
    functools.update_wrapper(made, function, updated=())
    return made


def _numbers(given: int | Iterable[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)
