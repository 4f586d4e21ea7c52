"""The plug-in for pytest: the fixture ``shardc_budget`` and ``--update-budgets``, which records baselines.

pytest finds it by itself where shardc is installed. It imports nothing of the compiler before a test asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from shardc.analysis.budget.violation import Checked

__all__ = ["BudgetSnapshots", "pytest_addoption", "shardc_budget"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-budgets``."""
    group = parser.getgroup("shardc")
    group.addoption(
        "--update-budgets", action="store_true", help="record what programs cost as the baselines of shardc_budget"
    )


@dataclass(slots=True)
class BudgetSnapshots:
    """What a test has as ``shardc_budget``: call it with a program, and it is compared with its recorded totals.

    Totals lie in ``folder``, in one file for each call of a test.

    >>> from pathlib import Path
    >>> from shardc.testing.pytest_plugin import BudgetSnapshots
    >>> BudgetSnapshots(Path("budgets"), "test_step", update=True)(program).within
    True
    """

    folder: Path
    name: str
    update: bool
    _names: set[str] = field(default_factory=set)

    def __call__(self, subject: Any, *arguments: Any, name: str = "", budget: Any = None, remedies: int = 3) -> Checked:
        """Fail where ``subject`` exceeds its recorded totals, or ``budget`` besides.

        ``subject``, ``arguments``, ``budget`` and ``remedies`` are those of `shardc.testing.assert_budget`. A second
        call in one test needs a ``name``. Raises `BudgetExceededError`, and `InputError` where nothing is recorded.
        """
        from shardc.analysis.budget.check import record
        from shardc.hlo.errors import InputError
        from shardc.testing.assertion import as_budget, as_partitioned, assert_budget

        key = re.sub(r"[^\w.-]+", "-", f"{self.name}-{name}" if name else self.name).strip("-")
        if key in self._names:
            raise InputError(f"two budgets are called {key}", where="shardc_budget", fix="give one of them a name=")
        self._names.add(key)
        given: Mapping[str, Any] = {} if budget is None else budget
        wanted = as_budget(given)
        wanted = replace(wanted, baseline=wanted.baseline or self.folder / f"{key}.json")
        partitioned = as_partitioned(subject, arguments, wanted.placed_machine)
        if self.update:
            record(partitioned, wanted)
        return assert_budget(partitioned, wanted, remedies=remedies)


@pytest.fixture
def shardc_budget(request: pytest.FixtureRequest) -> BudgetSnapshots:
    """Compares programs with totals that ``--update-budgets`` recorded in the folder ``budgets`` beside the test."""
    folder = request.path.parent / "budgets" / request.path.stem
    update = bool(request.config.getoption("--update-budgets"))
    return BudgetSnapshots(folder, str(request.node.name), update)
