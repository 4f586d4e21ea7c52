"""What the operators of a PyTorch graph mean, as functions of JAX.

The tables in `rows` have one row for each operator. Operators without a row become others by PyTorch's own
decompositions, where there are such. Every result is held against what PyTorch says that it is: another element type
is converted, another shape is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shardc.frontends.torch.custom_operators import bodies
from shardc.frontends.torch.determinants import determinants
from shardc.frontends.torch.draw_keys import Draws
from shardc.frontends.torch.element_types import numpy_type
from shardc.hlo.errors import UnsupportedError

__all__ = ["Operators", "decompositions"]

Row = Callable[..., Any]


def _rows() -> Mapping[str, Row]:
    from shardc.frontends.torch.rows import (
        backwards,
        bessel,
        conversions,
        elementwise,
        factorisations,
        indexing,
        orders,
        products,
        reductions,
        sampling,
        shapes,
        special,
        windows,
    )

    families = (elementwise, conversions, shapes, reductions, orders, indexing, products, factorisations, special,
                windows, sampling, bessel, backwards)  # fmt: skip
    return {name: row for family in families for name, row in family.ROWS.items()}


def _drawn() -> Mapping[str, Row]:
    from shardc.frontends.torch.rows import draws

    return draws.ROWS


def decompositions(torch: Any) -> dict[Any, Row]:
    """PyTorch's decompositions and the bodies of custom operators, of those that no row has."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    have = {**_rows(), **_drawn()}
    table = {**bodies(torch), **decomposition_table, **core_aten_decompositions(), **determinants(torch)}
    return {
        target: function
        for target, function in table.items()
        if str(target) not in have and str(getattr(target, "overloadpacket", target)) not in have
    }


class Operators:
    """The table, for one loaded PyTorch."""

    def __init__(self, torch: Any, jax: Any) -> None:
        self._torch, self._jax = torch, jax
        self._rows, self._drawn = _rows(), _drawn()

    def row(self, target: Any, draws: Draws | None = None) -> Row:
        """The function for an operator, with the next key of ``draws`` where it draws random numbers; UnsupportedError
        where there is none."""
        own, drawn = (self._row_in(rows, target) for rows in (self._rows, self._drawn))
        if own is not None:
            return own
        if drawn is not None and draws is not None:
            return partial(drawn, draws.key())
        if callable(target) and getattr(target, "__module__", "") in ("_operator", "math", "builtins"):
            return target  # type: ignore[no-any-return]  # Python's own operators, on sizes
        if draws is None and self._torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
            raise UnsupportedError(
                f"{target} draws random numbers",
                fix="call module.eval() first, give a seed= (from_torch, train_step), or pass the numbers as an input",
            )
        raise UnsupportedError(
            f"the operator {target} is not supported",
            fix="write it with other operators, or keep this part outside of the program",
        )

    @staticmethod
    def _row_in(rows: Mapping[str, Row], target: Any) -> Row | None:
        return rows.get(str(target)) or rows.get(str(getattr(target, "overloadpacket", "")))

    def argument(self, value: Any) -> Any:
        """An argument of an operator as rows take it."""
        torch = self._torch
        if isinstance(value, torch.dtype):
            return numpy_type(torch, value)
        if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return None
        return value

    def checked(self, node: Any, value: Any) -> Any:
        """``value`` as PyTorch says that the result of ``node`` is."""
        return self._checked(node, node.meta.get("val"), value)

    def _checked(self, node: Any, said: Any, value: Any) -> Any:
        if isinstance(said, (tuple, list)) and isinstance(value, (tuple, list)) and len(said) == len(value):
            return tuple(self._checked(node, s, v) for s, v in zip(said, value, strict=True))
        if not isinstance(said, self._torch.Tensor) or value is None:
            return value
        from shardc.frontends.torch.rows.conversions import converted

        jnp = self._jax.numpy
        wanted, dims = numpy_type(self._torch, said.dtype), tuple(int(n) for n in said.shape)
        array = jnp.asarray(value)
        if array.shape != dims:
            raise UnsupportedError(
                f"{node.target}: shardc computes shape {list(array.shape)}, but PyTorch has {list(dims)}"
            )
        return array if array.dtype == wanted else converted(array, wanted)
