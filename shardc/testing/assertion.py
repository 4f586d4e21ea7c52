"""`assert_budget`: a program, file or function against a budget, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardc.analysis.budget.budget import ProgramBudget, budget_of, read_budget
from shardc.analysis.budget.check import check
from shardc.analysis.budget.violation import Checked
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.units import kind_text
from shardc.stages.programs import load
from shardc.stages.stages import Compiled, Partitioned, Program, Propagated

__all__ = ["BudgetExceededError", "as_budget", "as_partitioned", "assert_budget"]


class BudgetExceededError(RunError, AssertionError):
    """A program exceeds its budget; ``checked`` has what, where and why as data.

    >>> try:
    ...     shardc.testing.assert_budget(program, {"limits": {"wire_bytes": "1 MiB"}}, remedies=0)
    ... except shardc.testing.BudgetExceededError as error:
    ...     print(error.checked.violations[0].line)
    step.py:17
    """

    def __init__(self, checked: Checked) -> None:
        super().__init__(checked.as_text())
        self.checked = checked

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.checked,))


def assert_budget(
    subject: Any, budget: str | Path | Mapping[str, Any] | ProgramBudget, *arguments: Any, remedies: int = 3
) -> Checked:
    """Raise an error if a program exceeds a budget.

    ``subject`` is the path of a program, a stage (`Program`, `Propagated`, `Partitioned`), or what `shardc.jit` returns
    together with the ``arguments`` of a call: arrays, or their shapes and dtypes. Nothing runs. ``budget`` is the path
    of a budget file, or its keys as a dict. For the first ``remedies`` collectives that break the budget, the check
    tries annotations that remove them. Returns the totals (bytes per device, seconds, operations).

    Raises `BudgetExceededError`, an AssertionError, with source line, reason and remedy. Raises `InputError` for an
    invalid budget and for subjects of another kind.

    >>> budget = {"limits": {"wire_bytes": "6 MiB"}, "forbid": [{"op": "all-gather"}]}
    >>> shardc.testing.assert_budget(program, budget).totals["wire_bytes"]
    5242884.0
    """
    wanted = as_budget(budget)
    found = check(as_partitioned(subject, arguments, wanted.placed_machine), wanted, remedies=remedies)
    if not found.within:
        raise BudgetExceededError(found)
    return found


def as_budget(budget: str | Path | Mapping[str, Any] | ProgramBudget) -> ProgramBudget:
    """A budget from what `assert_budget` takes. Raises `InputError`."""
    if isinstance(budget, ProgramBudget):
        return budget
    if isinstance(budget, Mapping):
        return budget_of(budget)
    if not isinstance(budget, str | Path):
        raise InputError(f"{kind_text(budget)} is not a budget", fix="give a budget file, or its keys as a dict")
    return read_budget(budget)


def as_partitioned(subject: Any, arguments: tuple[Any, ...], machine: str | None) -> Partitioned:
    """The per-device program of what `assert_budget` takes, made for ``machine``. Raises `InputError`."""
    if isinstance(subject, str | Path):
        subject = load(subject)
    if hasattr(subject, "program") and callable(subject.program):
        subject = subject.program(*arguments)
    if isinstance(subject, Program | Propagated):
        return subject.partition(machine=machine or None)
    if isinstance(subject, Partitioned):
        return subject
    kind = "a compiled program" if isinstance(subject, Compiled) else kind_text(subject)
    fix = "give a file, a Program, a Partitioned, or a function of shardc.jit with its arguments"
    raise InputError(f"{kind} has no budget", where="assert_budget", fix=fix)
