"""For tests of programs that are sharded: a test fails where a program exceeds its budget.

Start with `assert_budget`. The plug-in for pytest, `pytest_plugin`, adds the fixture ``shardc_budget``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardc.testing.assertion import BudgetExceededError as BudgetExceededError
    from shardc.testing.assertion import assert_budget as assert_budget

__all__ = ["BudgetExceededError", "assert_budget"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'shardc.testing' has no attribute {name!r}")
    from shardc.testing import assertion

    return getattr(assertion, name)
