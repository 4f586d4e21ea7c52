"""Custom calls: LAPACK's routines, and users' own C functions by address."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.linalg.lapack import emit_lapack, fill_zeros
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.executable import custom_call_symbol
from shardc.hlo.ir.custom_calls import SINK
from shardc.hlo.ir.lapack import LAPACK
from shardc.native.math.vector import I8, I64, PTR, constant

__all__ = ["emit_custom_call"]

#: Room for what XLA's functions take as their status, which nobody reads here.
_STATUS_BYTES = 64


def emit_custom_call(kernel: CpuKernel) -> None:
    """LAPACK's routines by their rows; a sink does nothing; any other target calls the symbol that stands for it."""
    target = kernel.instruction.attrs["custom_call_target"]
    if target in LAPACK:
        emit_lapack(kernel)
    elif target == SINK:
        kernel.emitter({}).finish()
    else:
        _call_user(kernel)


def _call_user(kernel: CpuKernel) -> None:
    """The interface of the call's ``api_version``, see `shardc.hlo.ir.custom_calls.CustomCall`."""
    i = kernel.instruction
    e = kernel.emitter({})
    b = e.entry.builder
    out = _addresses(e, kernel.results) if i.shape.is_tuple else kernel.results[0]
    arguments = [out, _addresses(e, kernel.operands)]
    room = [a for a in arguments if a is not kernel.results[0]]
    version = i.attrs.get("api_version", "")
    if version == "API_VERSION_STATUS_RETURNING_UNIFIED":
        arguments += _opaque(b, str(i.attrs.get("backend_config", "")))
    if version in ("API_VERSION_STATUS_RETURNING", "API_VERSION_STATUS_RETURNING_UNIFIED"):
        room.append(allocate(e, _STATUS_BYTES))
        fill_zeros(b, room[-1], _STATUS_BYTES)
        arguments.append(room[-1])
    name = custom_call_symbol(i.attrs["custom_call_target"])
    signature = ir.FunctionType(ir.VoidType(), [a.type for a in arguments])
    function = b.module.globals.get(name) or ir.Function(b.module, signature, name)
    b.call(function, arguments)
    release(e, room)
    e.finish()


def _addresses(e: CpuEmitter, places: list[ir.Value]) -> ir.Value:
    """An array of addresses, to be released."""
    b = e.entry.builder
    table = allocate(e, len(places) * 8)
    for number, place in enumerate(places):
        b.store(place, b.gep(table, [constant(I64, number)], source_etype=PTR))
    return table


def _opaque(b: ir.IRBuilder, text: str) -> list[ir.Value]:
    """The address and the length of the configuration's text."""
    data = text.encode()
    t = ir.ArrayType(I8, len(data) + 1)
    place = ir.GlobalVariable(b.module, t, b.module.get_unique_name("shardc.opaque"))
    place.initializer = ir.Constant(t, bytearray(data + b"\0"))
    place.linkage, place.global_constant = "internal", True
    return [place, constant(I64, len(data))]
