"""Kernels for tests of runtimes: ``y = x + device``, on one array per thread of 256."""

from __future__ import annotations

from functools import lru_cache

from llvmlite import ir

from shardc.native.gpu.emulated import EmulatedCode, compile_emulated, new_emulated_module
from shardc.native.gpu.grid import GridCode
from shardc.native.gpu.runtime import Image
from shardc.native.vector import F32, I32, I64, constant

__all__ = ["THREADS", "sample_image", "sample_module"]

THREADS = 64


@lru_cache(maxsize=1)
def sample_image() -> Image:
    """``add``: y[i] = x[i] + device; ``double``: x[i] *= 2; ``astray``: writes 4 bytes behind y's 64 elements."""
    module = new_emulated_module("samples")
    sample_module(module, EmulatedCode)
    return Image("emulated", compile_emulated(module))


def sample_module(module: ir.Module, code: type[GridCode]) -> None:
    """The kernels, in a module."""
    _define(module, code, "add", 0)
    _define(module, code, "astray", THREADS)
    _define_double(module, code)


def _begin(
    module: ir.Module, code: GridCode, name: str, pointers: int
) -> tuple[ir.Function, ir.IRBuilder, ir.IRBuilder]:
    function = code.define(module, name, pointers, (), THREADS)
    entry = ir.IRBuilder(function.append_basic_block("entry"))
    return function, entry, ir.IRBuilder(function.append_basic_block("body"))


def _place(b: ir.IRBuilder, array: ir.Value, code: GridCode, offset: int) -> ir.Value:
    index = b.add(b.add(b.mul(code.block(b), constant(I32, THREADS)), code.thread(b)), constant(I32, offset))
    return b.gep(array, [b.zext(index, I64)], source_etype=F32)


def _define(module: ir.Module, code_type: type[GridCode], name: str, offset: int) -> None:
    code = code_type()
    function, entry, b = _begin(module, code, name, 2)
    start = b.block
    x, y = code.pointers(function)
    value = b.load(_place(b, x, code, 0), typ=F32)
    b.store(b.fadd(value, b.sitofp(code.device(function), F32)), _place(b, y, code, offset))
    code.enter(entry)
    entry.branch(start)
    code.leave(b)


def _define_double(module: ir.Module, code_type: type[GridCode]) -> None:
    code = code_type()
    function, entry, b = _begin(module, code, "double", 1)
    start = b.block
    place = _place(b, code.pointers(function)[0], code, 0)
    b.store(b.fmul(b.load(place, typ=F32), ir.Constant(F32, 2.0)), place)
    code.enter(entry)
    entry.branch(start)
    code.leave(b)
