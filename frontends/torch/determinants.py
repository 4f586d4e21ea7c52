"""Decompositions of PyTorch's determinants, whose gradients count on which matrix was factorised.

PyTorch factorises the transpose of a contiguous matrix, which costs LAPACK no copy, and its formula of the gradient
asks in the same way which of both it was. Strides are known to decompositions, not to rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["determinants"]


def determinants(torch: Any) -> dict[Any, Callable[..., Any]]:
    """``_linalg_det`` and ``_linalg_slogdet`` by a LU factorisation."""
    aten = torch.ops.aten

    def factorised(a: Any) -> tuple[Any, Any, Any, Any]:
        """The factors, their pivots, the diagonal, and -1 for each exchange of rows."""
        matrix = a.mT if a.is_contiguous() and not a.is_complex() else a
        factors, pivots, _ = aten.linalg_lu_factor_ex(matrix)
        places = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
        odd = (pivots != places).sum(-1) % 2
        return factors, pivots, factors.diagonal(dim1=-2, dim2=-1), (1 - 2 * odd).to(a.dtype)

    def determinant(a: Any) -> tuple[Any, Any, Any]:
        factors, pivots, diagonal, sign = factorised(a)
        return diagonal.prod(-1) * sign, factors, pivots

    def signed_logarithm(a: Any) -> tuple[Any, Any, Any, Any]:
        factors, pivots, diagonal, sign = factorised(a)
        return diagonal.sgn().prod(-1) * sign, diagonal.abs().log().sum(-1), factors, pivots

    return {aten._linalg_det.default: determinant, aten._linalg_slogdet.default: signed_logarithm}
