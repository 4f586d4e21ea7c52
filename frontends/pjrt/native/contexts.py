"""Execution contexts: what the client says of one execution besides its arguments, which are the Python functions that
the program calls.

jaxlib makes one for each execution, adds its `HostFunctionsRecord`, and destroys it when Execute has returned; the
record and the functions stay until the events of the execution are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.frontends.pjrt.abi.execution import ExecuteContextCreateArgs, ExecuteContextDestroyArgs
from shardc.frontends.pjrt.abi.extensions import FfiUserDataAddArgs
from shardc.frontends.pjrt.native.errors import UNIMPLEMENTED, fail, no_memory
from shardc.frontends.pjrt.native.memory_pool import allocate, give_back
from shardc.native.lowlevel.builtins import exported, static_text
from shardc.native.lowlevel.kinds import address, i32
from shardc.native.lowlevel.records import Record, Span

__all__ = [
    "CONTEXT_FUNCTIONS", "ContextRecord", "HostFunctionsRecord", "add_user_data", "create_context", "destroy_context",
    "functions_of", "refuse_ffi",
]  # fmt: skip

_CLASS = 0
_FFI = static_text(
    "shardc_pjrt_ffi",
    "the plug-in does not support JAX's foreign function interface\n"
    "  fix: call Python (jax.pure_callback), or run this function with JAX_PLATFORMS=cpu",
)


class ContextRecord(Record):
    """PJRT_ExecuteContext; ``functions`` is the address of a `HostFunctionsRecord`, or 0."""

    vtable: address
    functions: address


class HostFunctionsRecord(Record):
    """jaxlib's: the functions, objects of Python, by their number in the program."""

    items: Span[address]
    count: i32


@exported("shardc_pjrt_create_context")
def create_context(args: ExecuteContextCreateArgs) -> address:
    at = allocate(_CLASS)
    if at == 0:
        return no_memory()
    context = ContextRecord.at(at)
    context.vtable = 0
    context.functions = 0
    args.context = at
    return 0


@exported("shardc_pjrt_destroy_context")
def destroy_context(args: ExecuteContextDestroyArgs) -> address:
    give_back(args.context, _CLASS)
    return 0


@exported("shardc_pjrt_add_user_data")
def add_user_data(args: FfiUserDataAddArgs) -> address:
    """jaxlib adds nothing else than functions."""
    if HostFunctionsRecord.at(args.data).count != 0:
        ContextRecord.at(args.context).functions = args.data
    return 0


@exported("shardc_pjrt_refuse_ffi")
def refuse_ffi(args: address) -> address:
    return fail(UNIMPLEMENTED, _FFI)


def functions_of(context: address) -> address:
    """The `HostFunctionsRecord` of a context that may be null; 0 where there is none."""
    return ContextRecord.at(context).functions if context != 0 else context


#: By PJRT's names.
CONTEXT_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "ExecuteContext_Create": create_context,
    "ExecuteContext_Destroy": destroy_context,
}
