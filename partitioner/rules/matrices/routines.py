"""LAPACK's routines by name, each with the programs that may replace it where the rows of its matrix are split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import routine_name
from shardc.partitioner.rules.matrices.cholesky import BLOCKED_CHOLESKY
from shardc.partitioner.rules.matrices.eigh import BLOCK_JACOBI, whole_eigen
from shardc.partitioner.rules.matrices.lu import BLOCKED_LU
from shardc.partitioner.rules.matrices.tall_qr import TALL
from shardc.partitioner.rules.matrices.triangular import BY_COLUMNS, BY_ROWS
from shardc.partitioner.rules.matrices.upper_cholesky import CHOLESKY_OF_COLUMNS
from shardc.partitioner.strategy.rule import ComputesOf, Local

__all__ = ["CustomCallRows"]

_PROGRAMS: Mapping[str, tuple[Local, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("geqrf", "orgqr", "gesdd"), (TALL,)),
        "potrf": (BLOCKED_CHOLESKY, CHOLESKY_OF_COLUMNS),
        "getrf": (BLOCKED_LU,),
        "syevd": (BLOCK_JACOBI,),
        "trsm": (BY_ROWS, BY_COLUMNS),
    }
)

#: What a routine computes on whole matrices, for those whose programs compute more than that.
_COMPUTES: Mapping[str, ComputesOf] = MappingProxyType({"syevd": whole_eigen})


class CustomCallRows:
    """The row of a custom call: ``plain``, with the programs of its routine besides."""

    def __init__(self, plain: Local) -> None:
        self.plain = plain
        self._rows = {
            name: replace(plain, alternatives=programs, computes=_COMPUTES.get(name))
            for name, programs in _PROGRAMS.items()
        }

    def of(self, op: Instruction) -> Local:
        """The same row for all calls of a routine."""
        return self._rows.get(routine_name(op.attrs["custom_call_target"]), self.plain)
