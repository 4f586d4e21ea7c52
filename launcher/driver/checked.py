"""Steps checked against the unpartitioned program (``SHARDC_CHECK=1``), and what ``shardc verify`` compares with.

The unpartitioned program is run by the evaluator on the same global arguments, once as it is and once in float64 as the
reference. That takes the whole values in memory and two runs in NumPy per step: for finding mistakes, not for training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import RunError, ShardcError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.custom_calls import CustomCalls
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import count_text
from shardc.launcher.arrays.copies import need_equal_copies
from shardc.launcher.arrays.gather import gather
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.driver.arguments import as_global, check_global
from shardc.launcher.driver.executables import COMPILE_WAIT
from shardc.partitioner.equivalence import agree, first_difference
from shardc.partitioner.exactness import exact_results
from shardc.partitioner.prepare.adopt_partitioned import is_partitioned
from shardc.partitioner.program import PropagatedProgram

if TYPE_CHECKING:
    from shardc.collectives.call.transport import Transport
    from shardc.compiler.executable import Executable

__all__ = ["Comparison", "StepCheck", "Unpartitioned", "need_agreement"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A result compared: its ``error`` and ``bound`` as `shardc.partitioner.equivalence.agree` has them.

    ``exact`` says that no rounding reaches the result, so that it has to agree to the bit; ``difference`` names the
    first element that does not.
    """

    index: int
    name: str
    exact: bool
    agrees: bool
    error: float
    bound: float
    difference: str

    def __str__(self) -> str:
        title = f"result {self.index}" + (f" ({self.name})" if self.name else "")
        limit = "must agree exactly" if self.exact else f"error {self.error:.2e}, bound {self.bound:.2e}"
        return f"{title}{self.difference and ': ' + self.difference}; {limit}"


@dataclass(frozen=True)
class Unpartitioned:
    """A program before partitioning, with its shardings: manual computations have a value over its mesh."""

    module: Module
    custom_calls: CustomCalls = field(default_factory=dict)

    @staticmethod
    def of(propagated: PropagatedProgram) -> Unpartitioned | None:
        """None for a program that somebody else has partitioned: there is no other to compare it with."""
        module = propagated.module
        return None if is_partitioned(module) else Unpartitioned(module, propagated.program.config.custom_calls)

    @cached_property
    def _exact(self) -> tuple[bool, ...]:
        return exact_results(self.module)

    def compare(self, arguments: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]) -> list[Comparison]:
        """One row per result that the partitioned program gave for the global ``arguments``."""
        with np.errstate(all="ignore"):
            want = evaluate(self.module, arguments, custom_calls=self.custom_calls)
            reference = evaluate(self.module, arguments, float64=True, custom_calls=self.custom_calls)
        names = self.module.result_names or ("",) * len(results)
        return [self._row(k, *x) for k, x in enumerate(zip(names, results, want, reference, strict=True))]

    def _row(self, index: int, name: str, got: NDArray[Any], want: NDArray[Any], reference: NDArray[Any]) -> Comparison:
        exact = self._exact[index]
        found = agree(got, want, reference, exact=exact)
        difference = "" if found.ok else first_difference(got, want, reference, bound=found.bound)
        return Comparison(index, name, exact, found.ok, _finite(found.error), _finite(found.bound), difference)


def need_agreement(program: str, rows: Sequence[Comparison]) -> None:
    """Raise `RunError` that names the results that differ, with the first element of each that does."""
    wrong = [row for row in rows if not row.agrees]
    if wrong:
        raise RunError(
            f"{program} differs from the unpartitioned program in {len(wrong)} of {count_text(len(rows), 'result')}",
            where="\n         ".join(str(row) for row in wrong[:8]),
            fix="try more inputs with shardc verify FILE, and report this with the output of shardc partition FILE",
        )


@dataclass(frozen=True)
class StepCheck:
    """Compares the steps of one driver; in a job all ranks together, one of which has the ``program`` and evaluates."""

    program: Unpartitioned | None
    executable: Executable
    transport: Transport

    def whole(self, arguments: Sequence[Any]) -> list[NDArray[Any]]:
        """The global values of a step's arguments, before it runs. Raises `InputError` for those that do not fit."""
        return [self._whole(k, a) for k, a in enumerate(arguments)]

    def _whole(self, number: int, value: Any) -> NDArray[Any]:
        spec = self.executable.arguments[number]
        title = partial("argument {} ({})".format, number, spec.name)
        if isinstance(value, ShardedArray):
            need_equal_copies(value, title())
            return np.asarray(gather(value))
        array = as_global(value, spec.global_shape.dtype, title)
        check_global(array.shape, array.dtype, ArrayLayout.of(spec, self.executable.num_devices), title)
        return array

    def compare(self, arguments: Sequence[NDArray[Any]], results: Sequence[ShardedArray]) -> None:
        """Raise `RunError` on all ranks unless ``results`` are what the unpartitioned program gives."""
        values = [np.asarray(gather(r)) for r in results]
        found: ShardcError | None = None
        if self.program is not None:
            try:
                need_agreement(self.executable.name, self.program.compare(arguments, values))
            except ShardcError as e:
                found = e
        errors = self.transport.exchange_objects(
            found, doing=f"a step of {self.executable.name} (results are compared)", timeout_factor=COMPILE_WAIT
        )
        first = next((e for e in errors if e is not None), None)
        if first is not None:
            raise first


def _finite(x: float) -> float:
    """JSON has no infinity."""
    return x if math.isfinite(x) else 1e308
