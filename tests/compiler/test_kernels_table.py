"""The table of supported ops, keys of equal kernels, errors."""

from __future__ import annotations

import pytest

from shardc.compiler.cpu.support import KERNELS, supports
from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.kernel_key import kernel_key
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import array_shape as f
from shardc.hlo.ir.types import token_shape
from shardc.native.llvm import jit
from tests.compiler.kernel_runner import fusion, instruction


def test_every_op_has_code_or_a_reason() -> None:
    assert set(KERNELS) == set(OPS)
    assert not [opcode for opcode, why in KERNELS.items() if why == "no native code yet"]
    assert supports(instruction("add", f("f32", 3), f("f32", 3))) is None
    assert "step" in str(supports(instruction("tuple", f("f32", 3))))


def test_key_depends_on_what_the_kernel_does() -> None:
    def total(dtype: str, opcode: str, dim: int, name: str = "x") -> str:
        body = binary_computation(opcode, dtype, name)
        return kernel_key(instruction("reduce", f(dtype, 4, 4), f(dtype), dimensions=(dim,), to_apply=body))

    keys = [total("f32", "add", 0), total("f32", "add", 1), total("f64", "add", 0), total("f32", "maximum", 0)]
    assert len(set(keys)) == 4
    assert total("f32", "add", 0, "another") == keys[0]


def test_key_tells_repeated_operands_and_constants_apart() -> None:
    b = Builder("c")
    x, y = b.parameter(f("f32", 3)), b.parameter(f("f32", 3))
    assert kernel_key(b.add("add", x, y)) == kernel_key(b.add("add", y, x))
    assert kernel_key(b.add("add", x, x)) != kernel_key(b.add("add", x, y))

    def plus(value: float) -> str:
        c = Builder("c")
        p = c.parameter(f("f32", 3))
        return kernel_key(fusion(c.build(c.add("add", p, c.constant(value, "f32", (3,))))))

    assert plus(1.0) == plus(1.0) != plus(2.0)


def test_what_has_no_code_is_a_clear_error() -> None:
    b = Builder("c")
    token = b.add("after-all", shape=token_shape())
    with pytest.raises(UnsupportedError):
        emit_kernel(jit.new_module("m"), token, "k")
