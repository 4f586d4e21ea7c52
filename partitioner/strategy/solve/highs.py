"""HiGHS as a silent solver with one thread: it solves the linear and the integer programs of a choice."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

__all__ = ["has_highs", "make_solver"]

#: The network is reduced already: HiGHS's presolve would take most of the time.
_OPTIONS = {"output_flag": False, "threads": 1, "random_seed": 0, "presolve": "off"}


def has_highs() -> bool:
    """Whether HiGHS is installed."""
    return find_spec("highspy") is not None


def make_solver(**options: object) -> Any:
    """A HiGHS solver with ``options``, by their names in HiGHS. It prints nothing.

    Example: ``make_solver(mip_rel_gap=1e-4)``.
    """
    import highspy

    class _Silent(highspy.Highs):  # type: ignore[misc]
        # highspy 1.16 calls this when it makes a solver, and prints a banner to standard output unless told before.
        def enableCallbacks(self) -> None:  # noqa: N802
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    solver = _Silent()
    for name, value in (_OPTIONS | options).items():
        solver.setOptionValue(name, value)
    return solver
