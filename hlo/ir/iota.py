"""Device lists as transposed iotas, the compact form ``[..]<=[4,2]T(1,0)`` of GSPMD's V2 notation.

An iota of ``reshape`` dimensions, transposed by ``transpose`` and flattened, is a nest of strided runs. `IotaForm`
is made from such a nest (sizes and strides, major to minor) or recovered from an explicit list of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardc.hlo.ir.mesh import Mesh, check_listable
from shardc.hlo.ir.sharding import AxisRef

__all__ = ["IotaForm", "device_order", "iota_of_devices", "iota_of_strides", "split_axes"]


@dataclass(frozen=True, slots=True)
class IotaForm:
    """``reshape`` and ``transpose`` in lowest terms; no transpose for the plain iota of ``reshape == (n,)``."""

    reshape: tuple[int, ...]
    transpose: tuple[int, ...] = ()

    def __str__(self) -> str:
        text = "<=[" + ",".join(map(str, self.reshape)) + "]"
        return text + ("T(" + ",".join(map(str, self.transpose)) + ")" if self.transpose else "")


def iota_of_strides(sizes: Sequence[int], strides: Sequence[int]) -> IotaForm:
    """The form of a nest of runs, major to minor, whose strides are those of a permuted row-major grid."""
    runs: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    by_stride = sorted(runs, key=lambda run: -run[1])
    reshape = tuple(size for size, _ in by_stride) or (1,)
    transpose = tuple(by_stride.index(run) for run in runs)
    return IotaForm(reshape, transpose if len(runs) > 1 else ())


def iota_of_devices(devices: Sequence[int]) -> IotaForm | None:
    """The form whose expansion is ``devices``, or None when there is none. Linear in their number."""
    total = len(devices)
    runs: list[tuple[int, int]] = []  # minor to major
    step = 1
    while step < total:
        stride = devices[step] - devices[0]
        length = 1
        while length * step < total and devices[length * step] - devices[0] == length * stride:
            length += 1
        if stride <= 0 or total % (step * length):
            return None
        runs.append((length, stride))
        step *= length
    expected = 1
    for size, stride in sorted(runs, key=lambda run: run[1]):
        if stride != expected:
            return None
        expected *= size
    values = [0]
    for size, stride in runs:
        values = [v + i * stride for i in range(size) for v in values]
    if values != list(devices):
        return None
    runs.reverse()
    return iota_of_strides([size for size, _ in runs], [stride for _, stride in runs])


def split_axes(mesh: Mesh, axes: Sequence[AxisRef]) -> tuple[list[AxisRef], list[int]]:
    """Cut the mesh's axes at all borders of ``axes``.

    Returns the pieces, major to minor over the whole mesh, and their strides in positions of the mesh's grid.
    """
    pieces: list[AxisRef] = []
    for name, size in mesh.axes:
        cuts = {1, size}
        for a in axes:
            if a.name == name and not a.is_full:
                cuts |= {a.pre, a.pre * a.size}
        marks = sorted(cuts)
        pieces += [AxisRef(name, lo, hi // lo) for lo, hi in pairwise(marks)]
    strides = [1] * len(pieces)
    for i in range(len(pieces) - 2, -1, -1):
        strides[i] = strides[i + 1] * pieces[i + 1].size
    return pieces, strides


def device_order(mesh: Mesh, groups: Sequence[Sequence[AxisRef]]) -> tuple[IotaForm | None, tuple[int, ...]]:
    """Devices listed over ``groups`` of axes, major to minor, which together cover the mesh exactly.

    Returns the compact form, and for a mesh whose device ids have none, None and the explicit list.
    """
    axes = [a for group in groups for a in group]
    pieces, strides = split_axes(mesh, axes)
    order: list[int] = []
    for a in axes:
        low, high = (1, mesh.axis_size(a.name)) if a.is_full else (a.pre, a.pre * a.size)
        order += [i for i, p in enumerate(pieces) if p.name == a.name and low <= p.pre < high]
    sizes = [pieces[i].size for i in order]
    steps = [strides[i] for i in order]
    if mesh.device_ids is None:
        return iota_of_strides(sizes, steps), ()
    check_listable(mesh.size, "an order")
    positions = [0]
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        positions = [p + i * step for i in range(size) for p in positions]
    devices = tuple(mesh.device_ids[p] for p in positions)
    form = iota_of_devices(devices)
    return form, () if form is not None else devices


def remaining_axes(mesh: Mesh, used: Sequence[AxisRef]) -> list[AxisRef]:
    """What of the mesh's axes ``used`` leaves over, major to minor, as sub-axes where an axis is cut."""
    pieces, _ = split_axes(mesh, used)
    taken = [(a.name, 1, mesh.axis_size(a.name)) if a.is_full else (a.name, a.pre, a.pre * a.size) for a in used]
    return [p for p in pieces if not any(n == p.name and low <= p.pre < high for n, low, high in taken)]
