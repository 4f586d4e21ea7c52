"""``np.fft``: transforms along chosen axes by HLO's fft, with NumPy's sizes and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.ir.types import array_shape
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import constant, convert, emit, hlo_dtype, lift, normal_axes, normal_axis, take_slice

__all__ = ["FUNCTIONS"]


def _resize(x: Tracer, axis: int, n: int) -> Tracer:
    """Cropped or padded with zeros at the end."""
    if x.shape[axis] >= n:
        return take_slice(x, axis, 0, n)
    more = n - x.shape[axis]
    return emit(
        "pad", x, constant(x, np.zeros((), x.dtype)), padding=tuple((0, more * (k == axis), 0) for k in range(x.ndim))
    )


def _scale(norm: str | None, inverse: bool, n: int) -> float:
    """What HLO's transform (which divides by n in the inverse) still needs."""
    kind = norm or "backward"
    if kind not in ("backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    wanted = (
        {"backward": 1 / n, "ortho": 1 / math.sqrt(n), "forward": 1.0}
        if inverse
        else ({"backward": 1.0, "ortho": 1 / math.sqrt(n), "forward": 1 / n})
    )
    return wanted[kind] * (n if inverse else 1)


def _one(x: Tracer, kind: str, n: int, axis: int, norm: str | None) -> Tracer:
    """One transform of length ``n`` along ``axis``."""
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    real_in, real_out = kind == "RFFT", kind == "IRFFT"
    half = n // 2 + 1
    x = _resize(x, axis, half if real_out else n)
    moved = NP.moveaxis(x, axis, -1)
    dtype = x.dtype
    if real_in:
        shape = array_shape("c64" if x.aval.dtype.bits == 32 else "c128", *moved.shape[:-1], half)
    elif real_out:
        shape = array_shape("f32" if x.aval.dtype.bits == 64 else "f64", *moved.shape[:-1], n)
    else:
        shape = array_shape(hlo_dtype(dtype, x.recorder), *moved.shape)
    made = emit("fft", moved, shape=shape, fft_type=kind, fft_length=(n,))
    factor = _scale(norm, kind.startswith("I"), n)
    if factor != 1:
        made = NP.multiply(made, made.dtype.type(factor))
    back: Tracer = NP.moveaxis(made, -1, axis)
    return back


def _ready(recorder: Trace, a: Any, kind: str) -> Tracer:
    """In the type that the transform works in: half and single precision in single, all else in double."""
    x = lift(recorder, a)
    single = x.dtype in (np.float16, np.float32, np.complex64)
    real = kind == "RFFT"
    if real and x.aval.dtype.is_complex:
        raise TypeError("ufunc 'rfft' did not contain a loop with signature matching types complex")
    wanted = (np.float32 if single else np.float64) if real else (np.complex64 if single else np.complex128)
    return convert(x, wanted)


def _transform(kind: str) -> Callable[..., Any]:
    def function(recorder: Trace, a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        x = _ready(recorder, a, kind)
        d = normal_axis(axis, x.ndim)
        size = x.shape[d] if kind != "IRFFT" else 2 * (x.shape[d] - 1)
        return _one(x, kind, size if n is None else int(n), d, norm)

    return function


def _sizes(x: Tracer, s: Any, axes: Any, kind: str) -> tuple[list[int], list[int]]:
    if axes is None:
        chosen = list(range(x.ndim)) if s is None else list(range(x.ndim - len(s), x.ndim))
    else:
        chosen = [normal_axis(d, x.ndim) for d in axes]
    sizes = (
        [x.shape[d] for d in chosen]
        if s is None
        else [int(n) if n != -1 else x.shape[d] for n, d in zip(s, chosen, strict=True)]
    )
    if s is None and kind == "IRFFT":
        sizes[-1] = 2 * (x.shape[chosen[-1]] - 1)
    return sizes, chosen


def _many(kind: str, default: Any) -> Callable[..., Any]:
    """Transforms along several axes, the last one first (for real data: the last one is the real one)."""
    others = {"RFFT": "FFT", "IRFFT": "IFFT"}.get(kind, kind)

    def function(recorder: Trace, a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        x = _ready(recorder, a, kind)
        sizes, chosen = _sizes(x, s, axes, kind)
        steps = [(n, d, others) for n, d in zip(sizes[:-1], chosen[:-1], strict=True)]
        last = (sizes[-1], chosen[-1], kind)
        for n, d, step in [*steps, last] if kind == "IRFFT" else [last, *steps[::-1]]:
            x = _one(x, step, n, d, norm)
        return x

    return function


def _hermitian(inverse: bool) -> Callable[..., Any]:
    """hfft is irfft of the conjugate with the other norm, ihfft the conjugate of rfft."""
    swapped = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}

    def function(recorder: Trace, a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        if inverse:
            return NP.conjugate(NP.fft.rfft(lift(recorder, a), n, axis, swapped[norm]))
        turned = NP.conjugate(lift(recorder, a))
        return NP.fft.irfft(turned, n, axis, swapped[norm])

    return function


def _shift(back: bool) -> Callable[..., Any]:
    def function(recorder: Trace, x: Any, axes: Any = None) -> Any:
        value = lift(recorder, x)
        chosen = normal_axes(axes, value.ndim)
        by = [-(value.shape[d] // 2) if back else value.shape[d] // 2 for d in chosen]
        return NP.roll(value, by, chosen)

    return function


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "fft.fft": _transform("FFT"),
    "fft.ifft": _transform("IFFT"),
    "fft.rfft": _transform("RFFT"),
    "fft.irfft": _transform("IRFFT"),
    "fft.hfft": _hermitian(False),
    "fft.ihfft": _hermitian(True),
    "fft.fft2": _many("FFT", (-2, -1)),
    "fft.ifft2": _many("IFFT", (-2, -1)),
    "fft.rfft2": _many("RFFT", (-2, -1)),
    "fft.irfft2": _many("IRFFT", (-2, -1)),
    "fft.fftn": _many("FFT", None),
    "fft.ifftn": _many("IFFT", None),
    "fft.rfftn": _many("RFFT", None),
    "fft.irfftn": _many("IRFFT", None),
    "fft.fftshift": _shift(False),
    "fft.ifftshift": _shift(True),
}
