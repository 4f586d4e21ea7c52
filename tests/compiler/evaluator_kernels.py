"""Kernels that call back into the NumPy evaluator: lowering, plans and the step apart from code generation."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir

from shardc.compiler.lower.buffers.linearise import array_leaves
from shardc.hlo.evaluate import ROWS
from shardc.hlo.evaluate.interpreter import Interpreter
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.native.math.vector import I32, I64, PTR

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int32)


class EvaluatorKernels:
    """Use an instance in place of ``emit_kernel``; it must outlive the code. Results are filled with junk first
    unless they are in place, so that a kernel that reads what it should not gives wrong answers."""

    def __init__(self) -> None:
        self._keep: list[Any] = []
        self.calls: list[str] = []

    def __call__(self, module: ir.Module, instruction: Instruction, name: str) -> ir.Function:
        shapes = [s for o in instruction.operands for s in array_leaves(o.shape)]
        results = list(array_leaves(instruction.shape))
        count = len(shapes) + len(results)
        callback = CALLBACK(lambda places, device: self._run(instruction, shapes, results, places, device))
        self._keep.append(callback)
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR] * count + [I32]), name)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        table = b.alloca(ir.ArrayType(PTR, max(count, 1)))
        for n in range(count):
            slot = b.gep(table, [ir.Constant(I32, 0), ir.Constant(I32, n)])
            b.store(function.args[n], slot)
        address = ctypes.cast(callback, ctypes.c_void_p).value
        typed = ir.FunctionType(ir.VoidType(), [table.type, I32])
        b.call(b.inttoptr(ir.Constant(I64, address), typed.as_pointer()), [table, function.args[-1]])
        b.ret_void()
        return function

    def _run(self, instruction: Instruction, shapes: Any, results: Any, places: Any, device: int) -> None:
        self.calls.append(instruction.opcode)
        arrays = [_array(places[n], s) for n, s in enumerate(shapes)]
        inputs = [a.copy() for a in arrays]
        out = [_array(places[len(shapes) + n], s) for n, s in enumerate(results)]
        for o in out:
            o.reshape(-1).view(np.uint8)[:] = 0xAB
        if instruction.opcode == "partition-id":
            out[0][...] = device
            return
        parameters = [Instruction("parameter", s, (), {"index": n}) for n, s in enumerate(shapes)]
        root = instruction.replace(operands=tuple(parameters))
        value = Interpreter(ROWS).run_one(Computation("kernel", [*parameters, root], root), inputs)
        for o, v in zip(out, value if isinstance(value, tuple) else (value,), strict=True):
            o[...] = v


def _array(place: int, shape: Any) -> np.ndarray:
    raw = (
        np.ctypeslib.as_array((ctypes.c_uint8 * shape.nbytes).from_address(place or 0))
        if shape.nbytes
        else np.empty(0, np.uint8)
    )
    return raw.view(shape.dtype.numpy).reshape(shape.dims)
