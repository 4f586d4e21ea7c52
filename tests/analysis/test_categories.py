"""Groups of operations: each opcode has one, a fusion the one of its costliest operation."""

from __future__ import annotations

import numpy as np

import shardc
from shardc.analysis.categories import category_of
from shardc.analysis.report.leaves import leaves_of_simulation
from shardc.hlo.ir.opset import OPS


def test_every_operation_that_computes_has_a_group() -> None:
    from shardc.analysis.categories import _GROUPS

    families = {op.family for name, op in OPS.items() if name not in _GROUPS}
    assert families - set(_GROUPS) == {"control"}


def test_kernels_are_grouped_by_what_is_costly_in_them() -> None:
    x = np.zeros((64, 64), np.float32)
    partitioned = shardc.trace(lambda x: np.tanh(x @ x + 1).sum() + np.sort(x, axis=0)[0, 0], x).propagate().partition()
    leaves = leaves_of_simulation(partitioned.simulate("h100-dgx"))
    groups = {leaf.category for leaf in leaves if leaf.kind == "kernel"}
    assert {"matrix products", "sorts"} <= groups <= {"matrix products", "sorts", "reductions", "elementwise"}
    dots = [i for i in partitioned.module.instructions() if i.opcode == "dot"]
    assert [category_of(i) for i in dots] == ["matrix products"]
