"""The interface's extensions that the plug-in has: layouts, shardings, and functions of Python in an execution."""

from __future__ import annotations

import ctypes
from typing import Any

from shardc.frontends.pjrt.abi.base import PjrtExtensionBase
from shardc.frontends.pjrt.abi.extensions import (
    FFI_EXTENSION,
    LAYOUTS_EXTENSION,
    SHARDINGS_EXTENSION,
    FfiExtension,
    LayoutsExecutableLayoutsArgs,
    LayoutsExtension,
    ShardingsArgs,
    ShardingsExtension,
)
from shardc.frontends.pjrt.analyses import CompiledAnalyses
from shardc.frontends.pjrt.api import MakeEntry
from shardc.frontends.pjrt.native.library import Library
from shardc.native.lowlevel.records import Record, address_of

__all__ = ["build_extensions"]


def build_extensions(library: Library, analyses: CompiledAnalyses, entry: MakeEntry) -> tuple[int, tuple[Any, ...]]:
    """The address of the first extension of the list, and what must stay for them."""
    shardings = ShardingsExtension(
        _base(ShardingsExtension, SHARDINGS_EXTENSION, 0),
        entry("Shardings_Executable_ParameterShardings", analyses.parameter_shardings, ShardingsArgs),
        entry("Shardings_Executable_OutputShardings", analyses.output_shardings, ShardingsArgs),
    )
    default = library.address("shardc_pjrt_default_layout")
    layouts = LayoutsExtension(
        _base(LayoutsExtension, LAYOUTS_EXTENSION, address_of(shardings)),
        library.address("shardc_pjrt_destroy_layout"),
        library.address("shardc_pjrt_serialize_layout"),
        default,
        library.address("shardc_pjrt_buffer_layout"),
        default,
        entry("Layouts_Executable_GetOutputLayouts", analyses.output_layouts, LayoutsExecutableLayoutsArgs),
        entry("Layouts_Executable_GetParameterLayouts", analyses.parameter_layouts, LayoutsExecutableLayoutsArgs),
    )
    refuse = library.address("shardc_pjrt_refuse_ffi")
    functions = FfiExtension(
        _base(FfiExtension, FFI_EXTENSION, address_of(layouts)),
        refuse,
        library.address("shardc_pjrt_add_user_data"),
        refuse,
    )
    return address_of(functions), (functions, layouts, shardings)


def _base(extension: type[Record], kind: int, following: int) -> PjrtExtensionBase:
    return PjrtExtensionBase(struct_size=ctypes.sizeof(extension), type=kind, next=following)
