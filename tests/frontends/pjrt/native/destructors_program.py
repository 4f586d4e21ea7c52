"""Objects whose destructors call Python through native code, while an exception is on its way; run by
`test_pjrt_trampoline`. Arguments: how many, and whether the exception is put aside."""

from __future__ import annotations

import ctypes
import sys

from pjrt_calls import Caller

from shardc.frontends.pjrt.abi.clients import ClientCreateArgs
from shardc.frontends.pjrt.abi.functions import FUNCTIONS
from shardc.frontends.pjrt.native.entries import struct_size
from shardc.frontends.pjrt.native.trampoline import call_python
from shardc.native.llvm.jit import compile_ir, load_object
from shardc.native.lowlevel.builtins import exported, static, symbol_of
from shardc.native.lowlevel.kinds import address
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import Record, address_of

_NUMBER = FUNCTIONS.index("Client_Create")


class GivenRecord(Record):
    """The structure for the next call."""

    args: address


_GIVEN = static(GivenRecord, "test_given")


@exported("test_given_at")
def given_at() -> address:
    return address_of(_GIVEN)


@exported("test_destroy")
def destroy(capsule: address) -> None:
    """The destructor of a capsule."""
    call_python(_NUMBER, _GIVEN.args)


def main(rounds: int, kept: bool) -> None:
    calls = [0]

    def create(args: ClientCreateArgs) -> None:
        calls[0] += 1
        if calls[0] % 2:
            raise ValueError("inner")

    client = Caller({"Client_Create": create})
    name = symbol_of(call_python) or ""
    code = compile_ir(compile_functions([given_at, destroy]))
    loaded = load_object(code, ["test_destroy", "test_given_at"], {name: client.library.address(name)})
    args = ClientCreateArgs(struct_size=struct_size(ClientCreateArgs))
    at = ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.address("test_given_at"))()
    GivenRecord.at(at).args = ctypes.addressof(args)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    plain = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(lambda capsule: create(args))
    destructor = loaded.address("test_destroy") if kept else ctypes.cast(plain, ctypes.c_void_p).value
    for _ in range(rounds):
        try:
            (new(1, None, destructor), [new(1, None, destructor), 1 // 0])
        except ZeroDivisionError as problem:
            assert problem.__context__ is None and problem.__traceback__ is not None
        else:
            raise AssertionError("the exception is gone")
    print(f"calls: {calls[0]}")


main(int(sys.argv[1]), sys.argv[2] == "kept")
