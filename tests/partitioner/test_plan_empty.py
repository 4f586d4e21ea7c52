"""Plans of programs that compute nothing: arrays without elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P


@pytest.mark.parametrize("machine", [None, "h100-dgx"])
@pytest.mark.parametrize("plan", ["propagated", "auto", "global"])
@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x[:0].sum(0), np.ones((18, 7))),
        (lambda x: x.T @ x, np.zeros((0, 7))),
        (lambda x: np.concatenate([x[:0], x]), np.ones((18, 7))),
    ],
)
def test_empty_arrays(function: Callable[[Any], Any], x: Any, plan: Any, machine: str | None) -> None:
    program = shardc.trace(function, x, mesh=Mesh({"d": 4})).annotate({"x": P("d")})
    partitioned = program.partition(plan=plan, machine=machine)
    np.testing.assert_array_equal(np.asarray(partitioned.compile()(x)), function(x))
    assert partitioned.simulate("h100-dgx").step_seconds >= 0
