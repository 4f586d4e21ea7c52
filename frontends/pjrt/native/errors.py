"""Errors as the client sees them: made, told, released."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.frontends.pjrt.abi.base import (
    ErrorDestroyArgs,
    ErrorForEachPayloadArgs,
    ErrorGetCodeArgs,
    ErrorMessageArgs,
)
from shardc.frontends.pjrt.native.memory_pool import allocate, class_of, give_back
from shardc.frontends.pjrt.native.records import IMMORTAL, ErrorRecord
from shardc.native.lowlevel.builtins import CountedText, as_u8, copy_memory, exported, local_array, static, static_text
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import ACQ_REL, RELAXED, address_of

__all__ = [
    "ABORTED", "CANCELLED", "ERROR_FUNCTIONS", "FAILED_PRECONDITION", "INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND",
    "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "destroy_error", "error_code", "error_message", "error_payloads", "fail",
    "keep_error", "make_error", "no_memory", "out_of_memory", "release_error",
]  # fmt: skip

#: Codes of errors that are made here.
CANCELLED, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED = 1, 3, 5, 8, 9, 10
UNIMPLEMENTED, INTERNAL = 12, 13

_NO_MEMORY = static(ErrorRecord, "shardc_pjrt_no_memory", references=IMMORTAL, code=RESOURCE_EXHAUSTED)
_NO_MEMORY_TEXT = static_text("shardc_pjrt_no_memory_text", "there is no memory left on this machine")
_OUT_OF_MEMORY_TEXT = static_text("shardc_pjrt_out_of_memory_text", "Out of memory allocating ")
_BYTES_TEXT = static_text("shardc_pjrt_bytes_text", " bytes")
_HEADER, _ZERO = 32, ord("0")


@exported("shardc_pjrt_make_error")
def make_error(code: i32, message: address, nbytes: i64) -> address:
    """An error with a copy of the message."""
    size_class = class_of(_HEADER + nbytes)
    at = allocate(size_class)
    if at == 0:
        return no_memory()
    error = ErrorRecord.at(at)
    error.vtable = 0
    error.references.store(1, RELAXED)
    error.code = code
    error.message.data = at + _HEADER
    error.message.nbytes = nbytes
    copy_memory(at + _HEADER, message, nbytes)
    return at


def fail(code: i32, message: CountedText) -> address:
    """An error whose message is one of the program's own."""
    return make_error(code, address_of(message) + 8, message.nbytes)


def no_memory() -> address:
    """What is given where there is no memory even for an error."""
    _NO_MEMORY.message.data = address_of(_NO_MEMORY_TEXT) + 8
    _NO_MEMORY.message.nbytes = _NO_MEMORY_TEXT.nbytes
    return address_of(_NO_MEMORY)


def out_of_memory(nbytes: i64) -> address:
    """The error where there is no memory for an array."""
    message = local_array(8, 96)
    length = _OUT_OF_MEMORY_TEXT.nbytes
    copy_memory(address_of(message), address_of(_OUT_OF_MEMORY_TEXT) + 8, length)
    power = 1
    while nbytes // power >= 10:
        power *= 10
    while power > 0:
        message[length] = as_u8(_ZERO + nbytes // power % 10)
        length += 1
        power //= 10
    copy_memory(address_of(message) + length, address_of(_BYTES_TEXT) + 8, _BYTES_TEXT.nbytes)
    return make_error(RESOURCE_EXHAUSTED, address_of(message), length + _BYTES_TEXT.nbytes)


def keep_error(error: ErrorRecord) -> None:
    """One reference more."""
    if error.references.load(RELAXED) >= 0:
        error.references.add(1, RELAXED)


@exported("shardc_pjrt_release_error")
def release_error(at: address) -> None:
    """One reference less; null is none."""
    if at != 0:
        error = ErrorRecord.at(at)
        if error.references.load(RELAXED) >= 0 and error.references.add(-1, ACQ_REL) == 1:
            give_back(at, class_of(_HEADER + error.message.nbytes))


@exported("shardc_pjrt_error_destroy")
def destroy_error(args: ErrorDestroyArgs) -> None:
    release_error(args.error)


@exported("shardc_pjrt_error_message")
def error_message(args: ErrorMessageArgs) -> None:
    error = ErrorRecord.at(args.error)
    args.message = error.message.data
    args.message_size = error.message.nbytes


@exported("shardc_pjrt_error_code")
def error_code(args: ErrorGetCodeArgs) -> address:
    args.code = ErrorRecord.at(args.error).code
    return 0


@exported("shardc_pjrt_error_payloads")
def error_payloads(args: ErrorForEachPayloadArgs) -> address:
    """Errors have none."""
    return 0


#: By PJRT's names.
ERROR_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "Error_Destroy": destroy_error,
    "Error_Message": error_message,
    "Error_GetCode": error_code,
    "Error_ForEachPayload": error_payloads,
}
