"""Padding that a window reads is the window's own: the array is not cut into other chunks before it is read.

``pad(x, 1)`` has other chunks than ``x``, so that nearly every element of it moves to a neighbour. A convolution,
a windowed reduction or the gradient of a pooling then reads most of them where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.sharding import Sharding
from shardc.partitioner.emit.emitter import identity_of
from shardc.partitioner.rules.window import passed_over, plain_reducer

__all__ = ["FoldPads"]

_Rule = Callable[[Instruction, tuple[Instruction, ...]], Instruction | None]
_NO_PADDING = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class FoldPads:
    """Pads along split dimensions, by what the window reads beyond the array in any case."""

    name: str = "fold-pads"
    why: str = "a padded array has other chunks than the array"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, lambda old, operands: _RULES[old.opcode](old, operands), _RULES.keys())


def _convolution(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    labels: ConvDims = old.attrs["dim_labels"]
    x = operands[0]
    if not _pads_with(x, x.shape.dtype.numpy.type(0)):
        return None
    given: Window | None = old.attrs.get("window")
    dims = list(given.dims) if given is not None else [WindowDim(1)] * len(labels.lhs_spatial)
    split, folded = _split_pads(x), []
    for n, d in enumerate(labels.lhs_spatial):
        if d in split and _adds_up(dims[n], x.attrs["padding"][d]):
            dims[n] = _pad(dims[n], x.attrs["padding"][d])
            folded.append(d)
    return _reading(old, (_without(x, folded), *operands[1:]), dims) if folded else None


def _reduce_window(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    opcode = plain_reducer(old.attrs["to_apply"])
    x = operands[0]
    if opcode is None or len(operands) != 2 or not _pads_with(x, identity_of(opcode, x.shape.dtype)):
        return None
    dims = list(old.attrs["window"].dims)
    folded = [d for d in _split_pads(x) if _adds_up(dims[d], x.attrs["padding"][d])]
    for d in folded:
        dims[d] = _pad(dims[d], x.attrs["padding"][d])
    return _reading(old, (_without(x, folded), *operands[1:]), dims) if folded else None


def _select_and_scatter(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """A slice of what is scattered into a padded array, where it cuts the padding off again."""
    (made,) = operands
    if made.opcode != "select-and-scatter":
        return None
    x = made.operands[0]
    if not _pads_with(x, passed_over(made.attrs["select"], x.shape.dtype)):
        return None
    dims, bounds = list(made.attrs["window"].dims), list(old.attrs["slice"])
    sizes = x.operands[0].shape.dims
    folded = [d for d in _split_pads(x) if _cuts(x.attrs["padding"][d], bounds[d], sizes[d]) and _is_bare(dims[d])]
    if not folded:
        return None
    for d in folded:
        dims[d], bounds[d] = _pad(dims[d], x.attrs["padding"][d]), (0, sizes[d], 1)
    inner = _without(x, folded)
    scattered = _reading(made, (inner, *made.operands[1:]), dims)
    scattered = scattered.replace(shape=made.shape.with_dims(inner.shape.dims), sharding=_of(old, inner))
    if scattered.shape.dims == old.shape.dims:
        return scattered
    return old.replace(operands=(scattered,), attrs={**old.attrs, "slice": tuple(bounds)})


_RULES: Mapping[str, _Rule] = {
    "convolution": _convolution,
    "reduce-window": _reduce_window,
    "slice": _select_and_scatter,
}


def _pads_with(x: Instruction, value: object) -> bool:
    """Whether ``x`` is a pad whose padding is this constant."""
    if x.opcode != "pad" or value is None or x.operands[1].opcode != "constant":
        return False
    literal: Literal = x.operands[1].attrs["literal"]
    return bool(literal.array.tobytes() == x.shape.dtype.numpy.type(value).tobytes())


def _split_pads(pad: Instruction) -> list[int]:
    """Padded dimensions that are split before or after."""
    x = pad.operands[0]
    shardings = [s for s in (x.sharding, pad.sharding) if isinstance(s, Sharding)]
    return [
        d
        for d, edges in enumerate(pad.attrs["padding"])
        if edges != _NO_PADDING and x.shape.dims[d] and any(s.dims[d].axes for s in shardings)
    ]


def _adds_up(w: WindowDim, edges: tuple[int, int, int]) -> bool:
    """What edges cut off does not come back as the window's padding."""
    return (edges[0] >= 0 or w.pad_low <= 0) and (edges[1] >= 0 or w.pad_high <= 0)


def _pad(w: WindowDim, edges: tuple[int, int, int]) -> WindowDim:
    """A window over an array that has these edges (low, high, interior)."""
    low, high, interior = edges
    n = w.lhs_dilate
    return replace(w, pad_low=w.pad_low + low * n, pad_high=w.pad_high + high * n, lhs_dilate=(interior + 1) * n)


def _without(pad: Instruction, dims: list[int]) -> Instruction:
    """The pad without its edges along ``dims``."""
    x = pad.operands[0]
    edges = tuple(_NO_PADDING if d in dims else e for d, e in enumerate(pad.attrs["padding"]))
    if all(e == _NO_PADDING for e in edges):
        return x
    sizes = tuple(x.shape.dims[d] if d in dims else n for d, n in enumerate(pad.shape.dims))
    shape = pad.shape.with_dims(sizes)
    return pad.replace(shape=shape, attrs={"padding": edges}, sharding=_of(pad, x))


def _of(op: Instruction, x: Instruction) -> object:
    """The sharding for what takes the place of ``op`` and has the split dimensions of ``x``."""
    return op.sharding if x.sharding is None else x.sharding


def _reading(old: Instruction, operands: tuple[Instruction, ...], dims: list[WindowDim]) -> Instruction:
    return old.replace(operands=operands, attrs={**old.attrs, "window": Window(tuple(dims))})


def _cuts(edges: tuple[int, int, int], bounds: tuple[int, int, int], n: int) -> bool:
    low, high, interior = edges
    return interior == 0 and low >= 0 and high >= 0 and bounds == (low, low + n, 1)


def _is_bare(w: WindowDim) -> bool:
    return (w.pad_low, w.pad_high, w.lhs_dilate, w.rhs_dilate) == (0, 0, 1, 1)
