"""What an operation says that it sends is what the program that is written for it sends."""

from __future__ import annotations

import random

import pytest
from partition_support import check
from test_windows import EIGHT, PROGRAMS, split

from shardc.hlo.ir.build import Builder
from shardc.partitioner.report import build_report
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rules import RULES
from shardc.partitioner.strategy.choose import SplitOperand, SplitProblem
from shardc.partitioner.strategy.rule import Local


@pytest.mark.parametrize("name", ["slice_", "pad", "reverse", "convolution", "reduce_window", "select_and_scatter"])
def test_what_is_sent_is_known_before(name: str) -> None:
    exact = 0
    for seed in range(30):
        b = Builder("main")
        module = split(b.build(PROGRAMS[name](random.Random(f"{name} {seed}"), b)))
        root = module.entry.root
        row = RULES[root.opcode]
        assert isinstance(row, Local)
        context = Context.over(EIGHT, module, None)
        costs = []
        for strategy in row.strategies:
            rule = strategy.rule(root)
            if rule is None:
                continue
            layouts = [context.layouts(o)[0] for o in root.operands]
            operands = tuple(
                SplitOperand(o.shape.dims, o.shape.dtype.nbytes, (x,), x)
                for o, x in zip(root.operands, layouts, strict=True)
            )
            result = (root.shape.dims, root.shape.dtype.nbytes, context.layouts(root)[0])
            sends = strategy.sends(root, rule) if strategy.sends is not None else None
            problem = SplitProblem(rule, strategy.usable(root, rule), operands, (result,), sends=sends)
            costs.append(context.choice(problem).cost)
        wire = build_report(check(module))["wire_bytes"]
        assert wire <= min(costs)[0]
        exact += wire == min(costs)[0] > 0
    assert exact > 4
