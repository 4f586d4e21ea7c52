"""Slices, pads, joins and reversals of one another: what is moved twice is moved once, what is not read is not made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.make import broadcast_scalar, make, splat_source, transpose

__all__ = ["RULES"]

#: Joins of joins grow up to so many pieces, so that a chain of n of them costs no n^2.
_MOST_PIECES = 64

Bounds = tuple[tuple[int, int, int], ...]


def _slice(x: Instruction, bounds: Sequence[tuple[int, int, int]], like: Instruction) -> Instruction:
    """``x`` between bounds (low, high, stride) per dimension; itself where they take all of it."""
    dims = tuple(max(0, -(-(high - low) // stride)) for low, high, stride in bounds)
    if dims == x.shape.dims:
        return x
    return make("slice", x.shape.with_dims(dims), (x,), like, slice=tuple(bounds))


def slice_of_broadcast(i: Instruction) -> Instruction | None:
    """A part of a broadcast is the broadcast of a part."""
    inner = i.operands[0]
    if inner.opcode != "broadcast" or not inner.operands[0].shape.dims:
        return None
    bounds = i.attrs["slice"]
    part = _slice(inner.operands[0], [bounds[d] for d in inner.attrs["dimensions"]], i)
    return make("broadcast", i.shape, (part,), i, **inner.attrs)


def slice_of_transpose(i: Instruction) -> Instruction | None:
    """Only the part that is read is transposed."""
    inner = i.operands[0]
    if inner.opcode != "transpose":
        return None
    permutation = inner.attrs["dimensions"]
    bounds = [(0, 0, 1)] * len(permutation)
    for bound, place in zip(i.attrs["slice"], permutation, strict=True):
        bounds[place] = bound
    return transpose(_slice(inner.operands[0], bounds, i), permutation, i)


def slice_of_pad(i: Instruction) -> Instruction | None:
    """A part of a padded array that lies inside is a part of the array; one that lies outside is padding."""
    inner = i.operands[0]
    if inner.opcode != "pad" or i.shape.size == 0:
        return None
    x, value = inner.operands
    bounds = []
    for (low, high, stride), (before, _, holes), n in zip(
        i.attrs["slice"], inner.attrs["padding"], x.shape.dims, strict=True
    ):
        last = low + (high - 1 - low) // stride * stride
        if not holes and (last < before or low >= before + n):
            return broadcast_scalar(value, i.shape.dims, i)
        if holes or low < before or last >= before + n:
            return None
        bounds.append((low - before, high - before if high - before <= n else n, stride))
    return _slice(x, bounds, i)


def pad_of_pad(i: Instruction) -> Instruction | None:
    """Padding around padding of the same value."""
    inner, value = i.operands
    paddings = (*i.attrs["padding"], *(inner.attrs["padding"] if inner.opcode == "pad" else ()))
    if inner.opcode != "pad" or inner.operands[1] is not value or any(low < 0 or high < 0 for low, high, _ in paddings):
        return None
    if any(holes for _, _, holes in paddings):
        return None
    pairs = zip(inner.attrs["padding"], i.attrs["padding"], strict=True)
    joined = tuple((a[0] + b[0], a[1] + b[1], 0) for a, b in pairs)
    return make("pad", i.shape, inner.operands, i, padding=joined)


def pad_that_cuts(i: Instruction) -> Instruction | None:
    """Padding that only takes away is a slice."""
    x = i.operands[0]
    padding = i.attrs["padding"]
    if any(low > 0 or high > 0 or holes for low, high, holes in padding) or i.shape.size == 0:
        return None
    bounds = [(-low, n + high, 1) for (low, high, _), n in zip(padding, x.shape.dims, strict=True)]
    return _slice(x, bounds, i)


def pad_of_splat(i: Instruction) -> Instruction | None:
    """Padding of a value that everything has already, or of nothing."""
    x, value = i.operands
    same = x.shape.size == 0 or (x.opcode == "broadcast" and splat_source(x) is value)
    return broadcast_scalar(value, i.shape.dims, i) if same else None


def concatenate_of_concatenates(i: Instruction) -> Instruction | None:
    """Pieces of pieces are pieces."""
    if not any(_joins_alike(o, i) for o in i.operands):
        return None
    pieces = [p for o in i.operands for p in (o.operands if _joins_alike(o, i) else (o,))]
    if len(pieces) > _MOST_PIECES:
        return None
    return make("concatenate", i.shape, pieces, i, **i.attrs)


def _joins_alike(o: Instruction, i: Instruction) -> bool:
    return o.opcode == "concatenate" and o.attrs["dimensions"] == i.attrs["dimensions"]


def concatenate_of_splats(i: Instruction) -> Instruction | None:
    """Neighbours that are splats of one value are one piece."""
    (d,) = i.attrs["dimensions"]
    pieces: list[Instruction] = []
    for o in i.operands:
        last = pieces[-1] if pieces else None
        if last is not None and _same_splat(last, o):
            dims = list(o.shape.dims)
            dims[d] += last.shape.dims[d]
            pieces[-1] = make("broadcast", o.shape.with_dims(tuple(dims)), o.operands, i, dimensions=())
        else:
            pieces.append(o)
    return _join(i, pieces)


def _same_splat(a: Instruction, b: Instruction) -> bool:
    if a.opcode != "broadcast" or b.opcode != "broadcast":
        return False
    return splat_source(a) is not None and splat_source(a) is splat_source(b)


def concatenate_of_neighbours(i: Instruction) -> Instruction | None:
    """Slices that continue one another are one slice."""
    (d,) = i.attrs["dimensions"]
    pieces: list[Instruction] = []
    for o in i.operands:
        last = pieces[-1] if pieces else None
        bounds = None if last is None else _join_bounds(last, o, d)
        if bounds is None:
            pieces.append(o)
        else:
            pieces[-1] = _slice(o.operands[0], bounds, i)
    return _join(i, pieces)


def _join_bounds(a: Instruction, b: Instruction, d: int) -> Bounds | None:
    """The bounds of both slices together, if the second goes on where the first ends."""
    if a.opcode != "slice" or b.opcode != "slice" or a.operands[0] is not b.operands[0]:
        return None
    first, second = a.attrs["slice"], b.attrs["slice"]
    others = all(x == y for n, (x, y) in enumerate(zip(first, second, strict=True)) if n != d)
    (low, middle, one), (start, high, stride) = first[d], second[d]
    if not others or one != 1 or stride != 1 or middle != start:
        return None
    return (*first[:d], (low, high, 1), *first[d + 1 :])


def _join(i: Instruction, pieces: list[Instruction]) -> Instruction | None:
    if len(pieces) == len(i.operands):
        return None
    return pieces[0] if len(pieces) == 1 else make("concatenate", i.shape, pieces, i, **i.attrs)


def reverse_of_reverse(i: Instruction) -> Instruction | None:
    """Dimensions that are reversed twice are as they were."""
    inner = i.operands[0]
    if inner.opcode != "reverse":
        return None
    once = set(i.attrs["dimensions"]) ^ set(inner.attrs["dimensions"])
    if not once:
        return inner.operands[0]
    return make("reverse", i.shape, inner.operands, i, dimensions=tuple(sorted(once)))


def reverse_of_broadcast(i: Instruction) -> Instruction | None:
    """Reversing along dimensions in which all is equal changes nothing."""
    inner = i.operands[0]
    if inner.opcode != "broadcast":
        return None
    kept = tuple(d for d in i.attrs["dimensions"] if d in inner.attrs["dimensions"])
    if len(kept) == len(i.attrs["dimensions"]):
        return None
    return make("reverse", i.shape, (inner,), i, dimensions=kept) if kept else inner


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "slice": (slice_of_broadcast, slice_of_transpose, slice_of_pad),
    "pad": (pad_that_cuts, pad_of_splat, pad_of_pad),
    "concatenate": (concatenate_of_concatenates, concatenate_of_splats, concatenate_of_neighbours),
    "reverse": (reverse_of_reverse, reverse_of_broadcast),
}
