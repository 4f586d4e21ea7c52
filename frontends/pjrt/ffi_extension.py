"""The extension by which jaxlib passes the Python functions that an execution calls."""

from __future__ import annotations

import ctypes

from shardc.frontends.pjrt.abi.base import PjrtExtensionBase
from shardc.frontends.pjrt.abi.extensions import FFI_EXTENSION, FfiExtension
from shardc.frontends.pjrt.native.library import Library

__all__ = ["ffi_extension"]


def ffi_extension(library: Library, following: int = 0) -> FfiExtension:
    """The extension; ``following`` is the address of the next one in the list, or 0."""
    refuse = library.address("shardc_pjrt_refuse_ffi")
    base = PjrtExtensionBase(struct_size=ctypes.sizeof(FfiExtension), type=FFI_EXTENSION, next=following)
    return FfiExtension(base, refuse, library.address("shardc_pjrt_add_user_data"), refuse)
