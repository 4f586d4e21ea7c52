"""How arrays lie in memory: row by row, so a layout is known by its number of dimensions.

The client asks for layouts under locks of its own; so this is native code, and calls nobody. A layout's handle is the
address of its text, ``{2,1,0}``, and nothing has to be released.
"""

from __future__ import annotations

from typing import Annotated

from shardc.frontends.pjrt.abi.extensions import (
    LayoutsBufferMemoryLayoutArgs,
    LayoutsDefaultLayoutArgs,
    LayoutsMemoryLayoutDestroyArgs,
    LayoutsMemoryLayoutSerializeArgs,
)
from shardc.frontends.pjrt.native.errors import INVALID_ARGUMENT, fail
from shardc.frontends.pjrt.native.records import BufferRecord
from shardc.native.lowlevel.builtins import exported, static_text
from shardc.native.lowlevel.kinds import Count, address, i64, u8
from shardc.native.lowlevel.records import Record, Span, address_of
from shardc.native.memory.strided_copies import MAX_RANK

__all__ = [
    "LayoutRecord", "buffer_layout", "default_layout", "delete_layout_text", "destroy_layout", "layout_of_rank",
    "serialize_layout",
]  # fmt: skip

_STRIDE = 192
_TEXTS = static_text(
    "shardc_pjrt_layouts",
    "".join(
        ("{" + ",".join(str(d) for d in reversed(range(rank))) + "}").ljust(_STRIDE) for rank in range(MAX_RANK + 1)
    ),
)
_TEXT_END = ord("}")
_RANK_TEXT = static_text("shardc_pjrt_rank_text", "an array of more than 64 dimensions")


class LayoutRecord(Record):
    """PJRT_Layouts_MemoryLayout."""

    characters: Annotated[Span[u8], Count(_STRIDE)]


@exported("shardc_pjrt_layout_of_rank")
def layout_of_rank(rank: i64) -> address:
    """The handle of the layout of arrays with ``rank`` dimensions."""
    return address_of(_TEXTS) + 8 + rank * _STRIDE


@exported("shardc_pjrt_destroy_layout")
def destroy_layout(args: LayoutsMemoryLayoutDestroyArgs) -> address:
    return 0


@exported("shardc_pjrt_delete_layout_text")
def delete_layout_text(text: address) -> None:
    """It stays."""


@exported("shardc_pjrt_serialize_layout")
def serialize_layout(args: LayoutsMemoryLayoutSerializeArgs) -> address:
    layout = LayoutRecord.at(args.layout)
    nbytes: i64 = 1
    while layout.characters[nbytes - 1] != _TEXT_END:
        nbytes += 1
    args.serialized_bytes = args.layout
    args.serialized_bytes_size = nbytes
    args.serialized_layout = args.layout
    args.serialized_layout_deleter = address_of(delete_layout_text)
    return 0


@exported("shardc_pjrt_default_layout")
def default_layout(args: LayoutsDefaultLayoutArgs) -> address:
    """Of arrays on a client's devices, or on a topology's."""
    if args.num_dims > MAX_RANK:
        return fail(INVALID_ARGUMENT, _RANK_TEXT)
    args.layout = layout_of_rank(args.num_dims)
    return 0


@exported("shardc_pjrt_buffer_layout")
def buffer_layout(args: LayoutsBufferMemoryLayoutArgs) -> address:
    args.layout = layout_of_rank(BufferRecord.at(args.buffer).rank)
    return 0
