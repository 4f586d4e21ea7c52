"""Comparison of a partitioned program with the whole one: arrays are cut into shards, joined and compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError
from shardc.hlo.ir.groups import groups_grid
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape, dtype_of
from shardc.hlo.units import count_text

__all__ = [
    "Agreement",
    "agree",
    "first_difference",
    "gather_array",
    "gather_results",
    "scatter_arguments",
    "scatter_array",
]

Array = NDArray[Any]


def shard_places(sharding: Sharding, dims: tuple[int, ...]) -> Iterator[tuple[int, tuple[slice, ...]]]:
    """For every device in order: its id and the part of a global array of ``dims`` that it holds (without padding).

    Device i of the k along a dimension holds ``[i c, min((i + 1) c, n))`` with ``c = ceil(n / k)``.
    """
    chunks = sharding.local_dims(dims)
    counts = sharding.num_shards()
    axes = [a for d in sharding.dims for a in d.axes]
    grid = groups_grid(sharding.mesh, axes)
    places: dict[int, tuple[slice, ...]] = {}
    for shard, position in enumerate(itertools.product(*(range(k) for k in counts))):
        part = tuple(slice(min(i * c, n), min((i + 1) * c, n)) for i, c, n in zip(position, chunks, dims, strict=True))
        for device in grid[:, shard]:
            places[int(device)] = part
    for device in range(sharding.mesh.size):
        yield device, places[device]


def scatter_array(array: Array, sharding: Sharding) -> list[Array]:
    """The local arrays of a global one, one per device, padded with zeros at the end where sizes are uneven."""
    out: list[Array] = []
    local = sharding.local_dims(array.shape)
    for _, part in shard_places(sharding, array.shape):
        piece = array[part]
        if piece.shape != local:
            padded = np.zeros(local, array.dtype)
            padded[tuple(slice(0, n) for n in piece.shape)] = piece
            piece = padded
        out.append(piece)
    return out


def gather_array(shards: Sequence[Array], sharding: Sharding, dims: tuple[int, ...]) -> Array:
    """The global array of ``dims`` from its local ones; padding is dropped, the first replica is taken."""
    out = np.empty(dims, shards[0].dtype)
    done: set[tuple[tuple[int, int], ...]] = set()
    for device, part in shard_places(sharding, dims):
        key = tuple((s.start, s.stop) for s in part)
        if key not in done:
            done.add(key)
            out[part] = shards[device][tuple(slice(0, s.stop - s.start) for s in part)]
    return out


def scatter_arguments(module: Module, args: Sequence[Array]) -> list[list[Array]]:
    """Per-device arguments of a partitioned module from flattened global ones; `InputError` when they do not fit."""
    shapes = [leaf for s in module.attrs["global_parameters"] for leaf in s.leaves()]
    shardings = [s for p in module.parameters for s in p.leaf_shardings()]
    if len(args) != len(shapes):
        raise InputError(f"the program takes {count_text(len(shapes), 'argument')}, but got {len(args)}")
    columns = []
    for i, (array, shape, sharding) in enumerate(zip(args, shapes, shardings, strict=True)):
        _check(i, array, shape)
        columns.append(scatter_array(array, sharding))
    return [[column[d] for column in columns] for d in range(module.num_partitions)]


def _check(index: int, array: Array, shape: Shape) -> None:
    if array.shape != shape.dims or dtype_of(array.dtype) is not shape.dtype:
        raise InputError(f"argument {index} is {array.dtype}{list(array.shape)}, but the program takes {shape}")


def gather_results(module: Module, results_per_device: Sequence[Sequence[Array]]) -> list[Array]:
    """Global results, flattened and without tokens, from those of every device."""
    shapes: tuple[Shape, ...] = module.attrs["global_results"]
    root: Instruction = module.entry.root
    arrays = [(s, x) for s, x in zip(shapes, root.leaf_shardings(), strict=True) if s.is_array]
    return [
        gather_array([r[i] for r in results_per_device], sharding, shape.dims)
        for i, (shape, sharding) in enumerate(arrays)
    ]


@dataclass(frozen=True, slots=True)
class Agreement:
    """One result compared: its error, the bound it had to keep, and whether it did."""

    ok: bool
    error: float
    bound: float

    def __bool__(self) -> bool:
        return self.ok


def agree(got: Array, want: Array, reference: Array | None = None, *, exact: bool | None = None) -> Agreement:
    """Whether ``got`` (partitioned) agrees with ``want`` (unpartitioned).

    Floats and complex numbers: ``max|got - ref| / max|ref| <= max(64 eps, 20 x own error of want)``, ``ref`` being
    the float64 evaluation (``want`` itself when none is given). NaNs and infinities must stand where the reference
    has them. Everything else must be equal, and so must floats with ``exact`` (what `exact_results` says of them).
    With ``exact`` False, other types were computed from rounded floats: up to 1 % of the elements may differ, or 20
    times as many as between ``want`` and the reference; ``error`` is the part that differs.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return Agreement(False, float("inf"), 0.0)
    kind = dtype_of(want.dtype)
    floats = kind.is_float or kind.is_complex
    if exact or (exact is None and not floats):
        same = bool(np.array_equal(got, want, equal_nan=floats))
        return Agreement(same, 0.0 if same else float("inf"), 0.0)
    if not floats:
        truth = want if reference is None else reference
        bound = max(0.01, 20 * _different(want, truth))
        return Agreement(_different(got, want) <= bound, _different(got, want), bound)
    return _agree_rounded(got, want, reference)


def first_difference(got: Array, want: Array, reference: Array | None = None, *, bound: float = 0.0) -> str:
    """Where ``got`` first leaves ``want``, and what stands there; empty if nowhere.

    Floats leave it where they differ by more than ``bound`` times the largest element of the reference (``want``
    itself when none is given). Example: ``[1,0] is 3.0, not 2.0``.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"it is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    truth = want if reference is None else reference
    kind = dtype_of(want.dtype)
    apart = np.asarray(got != want)
    if kind.is_float or kind.is_complex:
        wide = np.complex128 if kind.is_complex else np.float64
        x, y, t = got.astype(wide), want.astype(wide), truth.astype(wide)
        apart &= ~(np.isnan(x) & np.isnan(y))
        finite = np.abs(t[np.isfinite(t)])
        with np.errstate(all="ignore"):
            apart &= ~(np.abs(x - t) <= bound * (finite.max() if finite.size else 0.0))
    places = np.argwhere(apart)
    if not len(places):
        return ""
    at = tuple(int(n) for n in places[0])
    others = f" ({len(places)} of {count_text(got.size, 'element')} differ)" if len(places) > 1 else ""
    return f"[{','.join(map(str, at))}] is {got[at]}, not {want[at]}{others}"


def _different(x: Array, y: Array) -> float:
    """The part of the elements that are not equal."""
    return float(np.mean(x != y)) if x.size else 0.0


def _agree_rounded(got: Array, want: Array, reference: Array | None) -> Agreement:
    kind = dtype_of(want.dtype)
    wide = np.complex128 if kind.is_complex else np.float64
    truth = (want if reference is None else reference).astype(wide)
    eps = _epsilon(want)
    own = _error(want.astype(wide), truth)
    error = _error(got.astype(wide), truth)
    if not np.isfinite(own):
        # The unpartitioned run itself overflows where float64 does not: it is the only measure.
        error, own = _error(got.astype(wide), want.astype(wide)), 0.0
    bound = max(64 * eps, 20 * own)
    return Agreement(error <= bound, error, bound)


def _epsilon(array: Array) -> float:
    import ml_dtypes

    real = array.real.dtype if array.dtype.kind == "c" else array.dtype
    return float(ml_dtypes.finfo(real).eps)


def _error(x: Array, truth: Array) -> float:
    """``max|x - truth| / max|truth|`` over finite elements; infinite when the others differ."""
    if x.size == 0:
        return 0.0
    finite = np.isfinite(truth)
    if not np.array_equal(finite, np.isfinite(x)) or not np.array_equal(x[~finite], truth[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    difference = float(np.max(np.abs(x[finite] - truth[finite])))
    scale = float(np.max(np.abs(truth[finite])))
    return difference if scale == 0 else difference / scale
