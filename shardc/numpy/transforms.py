"""`jit` of NumPy functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from shardc.numpy.placing import mesh_in_use
from shardc.stages.jit_numpy import NumpyJit
from shardc.stages.jit_options import jit_options

__all__ = ["jit"]


def jit(
    function: Callable[..., Any] | None = None,
    *,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Iterable[int] = (),
    donate_argnames: str | Iterable[str] = (),
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    target: str = "cpu",
) -> Any:
    """Compile a NumPy function as one program over a mesh, at its first call for each signature, without JAX.

    The options are those of `shardc.jit`; without ``mesh``, the mesh of the arguments is used, and where they have
    none, that of `use_mesh` or all devices of the job. Results are values of
    `Array` with NumPy's element types. A generator of `shardc.numpy.random` among the arguments continues from call to
    call. ``np.jit`` is also a decorator. Raises what `shardc.trace` raises.

    >>> @np.jit
    ... def smooth(u):
    ...     return (u[:-2] + u[2:]) / 2
    >>> smooth(np.arange(64.0, mesh=mesh)).shape
    (62,)
    """

    def jitted(function: Callable[..., Any]) -> NumpyJit:
        options = jit_options(
            function,
            mesh=mesh,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            target=target,
        )
        made = NumpyJit(function, options, mesh_in_use)
        functools.update_wrapper(made, function, updated=())
        return made

    return jitted if function is None else jitted(function)
