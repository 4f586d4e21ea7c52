"""Symbolic dimensions made concrete: a module for any batch size becomes one for the shapes it is given."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.ir.types import Shape
from shardc.hlo.stablehlo.child import refine_text
from shardc.hlo.stablehlo.constants import mlir_element_type

__all__ = ["refine_shapes", "type_text"]


def refine_shapes(data: bytes, shapes: Sequence[Shape], file: str = "") -> bytes:
    """MLIR text of ``data`` for arguments of ``shapes``, one for each argument of the entry function.

    Everything that follows from the shapes is computed; a ``?`` that does not is left, and refused when the text is
    read. Raises InputError for shapes that do not fit the module, and as `read_stablehlo` does.
    """
    return refine_text(data, tuple(type_text(s) for s in shapes), file).encode()


def type_text(shape: Shape) -> str:
    """The MLIR type of an array: ``tensor<2x3xf32>``."""
    return "tensor<" + "".join(f"{n}x" for n in shape.dims) + mlir_element_type(shape.dtype) + ">"
