"""The table of operations' costs has a row for every operation of the op set."""

from __future__ import annotations

from shardc.costs.ops import (
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    linalg,
    random,
    reduction,
    shape,
    window,
)
from shardc.costs.ops.table import OP_COSTS
from shardc.hlo.ir.opset import OPS

_FAMILIES = (
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    linalg,
    random,
    reduction,
    shape,
    window,
)


def test_every_operation_has_its_row() -> None:
    assert OP_COSTS.keys() == OPS.keys()


def test_rows_stand_with_their_family() -> None:
    for module in _FAMILIES:
        family = module.__name__.rpartition(".")[2]
        assert {OPS[opcode].family for opcode in module.COSTS} == {family}
