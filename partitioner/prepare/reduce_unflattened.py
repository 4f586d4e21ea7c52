"""A reduction of flattened arrays runs over the dimensions that were flattened: none of them has to be made whole.

``norm(x)`` and ``argmax(x)`` flatten, work element by element, and reduce. A split minor dimension does not survive
the flattening, but neither the elementwise part nor the reduction minds the dimensions as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.sharding import Sharding
from shardc.partitioner.prepare.contract_unflattened import loses_axes, merge_runs

__all__ = ["ReduceUnflattened"]


@dataclass(frozen=True, slots=True)
class ReduceUnflattened:
    """Elementwise operations on merged dimensions, and the reductions that end them, on the dimensions before that.

    Only where nobody else reads what lies between, and where the flattening would cost a split; or might do so where
    layouts are ``free``, still to be chosen.
    """

    free: bool = False
    name: str = "reduce-unflattened"
    why: str = "a reduction of a flattened array need not gather the split dimensions that it runs over"

    def run(self, module: Module) -> Module:
        found = _Found()
        for c in module.computations:
            _look(c, found, free=self.free)
        return rebuild_module(module, _Lifting(found).change) if found.reductions else module


@dataclass(frozen=True, slots=True)
class _Frame:
    """The dimensions that a flat value has without the flattening, and how they are split."""

    dims: tuple[int, ...]
    sharding: Sharding
    lossy: bool


@dataclass(slots=True)
class _Found:
    """Flat values with their frames, and the reductions to be changed with theirs."""

    frames: dict[Instruction, _Frame] = field(default_factory=dict)
    reductions: dict[Instruction, _Frame] = field(default_factory=dict)


# -- what can be done ----------------------------------------------------------------------------------------------


def _look(c: Computation, found: _Found, *, free: bool) -> None:
    """Frames of a computation, and those reductions that can be changed without doing anything twice."""
    frames: dict[Instruction, _Frame] = {}
    for i in c:
        frame = _frame(i, frames)
        if frame is not None:
            frames[i] = replace(frame, lossy=True) if free else frame
    if not any(f.lossy for f in frames.values()):
        return
    reductions = {i: f for i in c if (f := _reduced_frame(i, frames)) is not None and f.lossy}
    _drop_what_others_read(c, frames, reductions)
    found.frames |= frames
    found.reductions |= reductions


def _frame(i: Instruction, frames: dict[Instruction, _Frame]) -> _Frame | None:
    if i.opcode == "reshape":
        x = i.operands[0]
        runs = merge_runs(x.shape.dims, i.shape.dims)
        merges = runs is not None and len(runs) < x.shape.rank
        if not merges or not isinstance(x.sharding, Sharding):
            return None
        return _Frame(x.shape.dims, replace(x.sharding, unreduced=()), loses_axes(i))
    if OPS[i.opcode].family != "elementwise" or i.opcode == "map" or not i.shape.is_array:
        return None
    return _joint([o for o in i.operands if o.shape.rank], frames)


def _joint(operands: list[Instruction], frames: dict[Instruction, _Frame]) -> _Frame | None:
    """The frame of arrays that are used together; values made from nothing fit into any."""
    given = [o for o in operands if not _is_made(o)]
    own = [frames[o] for o in given if o in frames]
    if not own or len(own) != len(given) or len({f.dims for f in own}) > 1:
        return None
    return replace(own[0], lossy=any(f.lossy for f in own))


def _is_made(i: Instruction) -> bool:
    splat = i.opcode == "constant" and i.attrs["literal"].splat is not None
    return splat or i.opcode == "iota" or (i.opcode == "broadcast" and not i.operands[0].shape.rank)


def _reduced_frame(i: Instruction, frames: dict[Instruction, _Frame]) -> _Frame | None:
    """The frame of a reduction of whole flattened dimensions."""
    if i.opcode != "reduce":
        return None
    arrays = list(i.operands[: len(i.operands) // 2])
    frame = _joint(arrays, frames)
    if frame is None:
        return None
    runs = merge_runs(frame.dims, arrays[0].shape.dims)
    kept = runs is not None and all(len(r) == 1 for d, r in enumerate(runs) if d not in i.attrs["dimensions"])
    return frame if kept else None


def _drop_what_others_read(
    c: Computation, frames: dict[Instruction, _Frame], reductions: dict[Instruction, _Frame]
) -> None:
    """Leave only values whose readers are all changed, and reductions that read such values or plain reshapes."""
    readers: dict[Instruction, list[Instruction]] = {}
    for i in c:
        for o in i.operands:
            readers.setdefault(o, []).append(i)

    def fits(i: Instruction) -> bool:
        return all(o in frames or o.opcode == "reshape" or _is_made(o) for o in i.operands if o.shape.rank)

    changed = True
    while changed:
        inside = [i for i in frames if i.opcode != "reshape"]
        gone = [
            i
            for i in inside
            if i is c.root or not fits(i) or not all(_goes_along(u, frames[i], frames, reductions) for u in readers[i])
        ]
        for i in gone:
            del frames[i]
        lost = [r for r in reductions if not fits(r)]
        for r in lost:
            del reductions[r]
        changed = bool(gone or lost)


def _goes_along(
    reader: Instruction, frame: _Frame, frames: dict[Instruction, _Frame], reductions: dict[Instruction, _Frame]
) -> bool:
    other = reductions.get(reader) or (frames.get(reader) if reader.opcode != "reshape" else None)
    return other is not None and other.dims == frame.dims


# -- doing it ------------------------------------------------------------------------------------------------------


class _Lifting:
    """The new values of flat ones, by the old ones."""

    def __init__(self, found: _Found) -> None:
        self.found = found
        self.lifted: dict[Instruction, Instruction] = {}

    def change(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        frame = self.found.frames.get(old)
        if frame is not None and old.opcode == "reshape":
            self.lifted[old] = operands[0]
        elif frame is not None:
            arrays = [self._in_frame(o, n, frame) for o, n in zip(old.operands, operands, strict=True)]
            shape = old.shape.with_dims(frame.dims).plain
            self.lifted[old] = old.replace(shape=shape, operands=tuple(arrays), sharding=frame.sharding)
        frame = self.found.reductions.get(old)
        if frame is None:
            return None
        flat = old.operands[0].shape.dims
        runs = merge_runs(frame.dims, flat)
        assert runs is not None
        count = len(operands) // 2
        arrays = [self._in_frame(o, n, frame) for o, n in zip(old.operands[:count], operands[:count], strict=True)]
        attrs = {**old.attrs, "dimensions": tuple(d for f in sorted(old.attrs["dimensions"]) for d in runs[f])}
        return old.replace(operands=(*arrays, *operands[count:]), attrs=attrs)

    def _in_frame(self, old: Instruction, new: Instruction, frame: _Frame) -> Instruction:
        """The new value of an operand in the dimensions of the frame."""
        if not old.shape.rank:
            return new
        if old in self.lifted:
            return self.lifted[old]
        if old.opcode == "iota":
            return _places(old, frame)
        made = old.opcode == "constant"
        return _spread(old, _scalar(old, old.attrs["literal"].splat, frame) if made else new.operands[0], (), frame)


def _spread(old: Instruction, x: Instruction, at: tuple[int, ...], frame: _Frame) -> Instruction:
    shape = x.shape.with_dims(frame.dims).plain
    return old.replace(
        opcode="broadcast", shape=shape, operands=(x,), attrs={"dimensions": at}, sharding=frame.sharding
    )


def _places(old: Instruction, frame: _Frame) -> Instruction:
    """Positions along a merged dimension, one term per dimension that it was."""
    runs = merge_runs(frame.dims, old.shape.dims)
    assert runs is not None
    total: Instruction | None = None
    pitch = 1
    for d in reversed(runs[old.attrs["iota_dimension"]]):
        part = _spread(old, _line(old, d, pitch, frame), (d,), frame)
        if total is not None:
            part = part.replace(opcode="add", operands=(part, total), attrs={})
        total, pitch = part, pitch * frame.dims[d]
    assert total is not None
    return total


def _line(old: Instruction, dim: int, pitch: int, frame: _Frame) -> Instruction:
    """0, ``pitch``, 2 ``pitch``, ... as long as dimension ``dim``."""
    shape = old.shape.with_dims((frame.dims[dim],)).plain
    along = replace(frame.sharding, dims=(frame.sharding.dims[dim],))
    line = old.replace(shape=shape, attrs={"iota_dimension": 0}, sharding=along)
    if pitch == 1:
        return line
    scalar = _scalar(old, np.asarray(pitch).astype(old.shape.dtype.numpy), frame)
    step = old.replace(opcode="broadcast", shape=shape, operands=(scalar,), attrs={"dimensions": ()}, sharding=along)
    return old.replace(opcode="multiply", shape=shape, operands=(line, step), attrs={}, sharding=along)


def _scalar(old: Instruction, value: ArrayLike, frame: _Frame) -> Instruction:
    attrs = {"literal": Literal(np.asarray(value))}
    whole = replace(frame.sharding, dims=())
    return old.replace(opcode="constant", shape=old.shape.with_dims(()).plain, operands=(), attrs=attrs, sharding=whole)
