"""Objects beside the step's own: the constants, and the thread pool."""

from __future__ import annotations

from shardc.native.llvm.jit import compile_ir
from shardc.native.llvm.target import Target
from shardc.native.threads.pool import pool_ir

__all__ = ["constants_object", "pool_object"]

#: Stands at the beginning of the constants until their bytes are put there.
_MARK = b"shardc: here the constants begin."


def constants_object(name: str, data: bytes, target: Target) -> bytes:
    """An object with ``data`` as the read-only symbol ``name``, aligned to 64 bytes.

    LLVM reads text, which would be three times as long as the data: it makes room, and the bytes are filled in.
    """
    size = max(len(data), len(_MARK))
    mark = "".join(f"\\{byte:02x}" for byte in _MARK)
    room = f"[{len(_MARK)} x i8]", f"[{size - len(_MARK)} x i8]"
    value = f'<{{ {room[0]} c"{mark}", {room[1]} zeroinitializer }}>'
    text = f'target triple = "{target.triple}"\n@{name} = constant <{{ {room[0]}, {room[1]} }}> {value}, align 64\n'
    code = compile_ir(text, target)
    assert code.count(_MARK) == 1
    at = code.index(_MARK)
    return code[:at] + data.ljust(size, b"\0") + code[at + size :]


def pool_object(target: Target) -> bytes:
    """The thread pool (`shardc.native.threads.pool`) for ``target``."""
    return compile_ir(pool_ir(target), target, opt=1)
