"""Every elementwise op of the op set has its rows: code for each type, a class of cost, a word on being repeated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shardc.compiler.elements.arithmetic.elementwise import ELEMENTWISE
from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.gpu.samples import sample
from shardc.compiler.lower.fuse.fusion_rules import is_cheap
from shardc.costs.ops.table import OP_COSTS
from shardc.hlo.errors import UnsupportedError, VerificationError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.infer import RULES
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import array_shape
from shardc.native.llvm import jit

OPCODES = [opcode for opcode, op in OPS.items() if op.family == "elementwise"]
#: Those whose result has a type that their operands do not tell; every type has the same code.
GIVEN = {"convert", "bitcast-convert", "stochastic-convert"}
ATTRS = {"compare": {"direction": "LT"}, "reduce-precision": {"exponent_bits": 5, "mantissa_bits": 3}}


def programs(opcode: str) -> Iterator[Module]:
    """The op on each kind of number that its shape rule takes."""
    for dtype in ("f32", "s32", "c64", "pred"):
        b = Builder("main")
        operands = [b.parameter(array_shape(dtype, 3)) for _ in range(OPS[opcode].arity or 1)]
        if opcode == "select":
            operands[0] = b.parameter(array_shape("pred", 3))
        try:
            yield make_module("m", b.build(b.add(opcode, *operands, **ATTRS.get(opcode, {}))))
        except VerificationError:
            continue


def has_a_meaning(module: Module) -> bool:
    try:
        evaluate(module, [np.ones(3, p.shape.dtype.numpy) for p in module.entry.parameters])
    except UnsupportedError:
        return False
    return True


@pytest.mark.parametrize("opcode", [o for o in OPCODES if o not in GIVEN | {"map"}])
def test_every_type_that_an_op_has_a_meaning_for_has_code(opcode: str) -> None:
    meant = [m for m in programs(opcode) if has_a_meaning(m)]
    assert meant
    for module in meant:
        emit_kernel(jit.new_module("m"), module.entry.root, "k")


def test_ops_whose_type_is_given_have_code() -> None:
    assert ELEMENTWISE >= GIVEN
    assert {o for o in OPCODES if RULES[o].infer is None} <= GIVEN | {"reduce-precision"}


def classes(i: Instruction) -> set[str]:
    """The classes of vector operations that the cost model counts."""
    return set(OP_COSTS[i.opcode].vector(i, OP_COSTS[i.opcode].flops(i)))


@pytest.mark.parametrize("opcode", [o for o in OPCODES if o not in ("map", "stochastic-convert")])
def test_what_calls_a_function_costs_more_and_is_not_computed_twice(opcode: str) -> None:
    i = sample(opcode)
    module = jit.new_module("m")
    emit_kernel(module, i, "k")
    if any(name.startswith("shardc.") for name in module.globals):
        assert classes(i) & {"special", "long"}, f"{opcode} needs a class in costs/ops/elementwise.py"
    assert is_cheap(i) == (not classes(i) & {"special", "long"}), "fusion_rules.py and the cost model differ"
