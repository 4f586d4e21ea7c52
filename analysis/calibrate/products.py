"""Loops of matrix products and of convolutions, by size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shardc.analysis.calibrate.programs import MeasuredLoop
from shardc.costs.machines.measured import Points, Products

__all__ = [
    "CONVOLUTIONS",
    "Convolution",
    "convolution_loops",
    "convolutions_fit",
    "operations_of",
    "product_loops",
    "products_fit",
]

#: Sizes of m, n and k: all combinations are measured.
SIZES: Mapping[str, tuple[int, ...]] = {
    "f32": (8, 32, 128, 512, 1024),
    "f64": (16, 128, 768),
    "bf16": (32, 256),
}
_SMALL: Mapping[str, tuple[int, ...]] = {"f32": (16, 128, 768)}
#: Sizes of products of which one side lies transposed.
_TURNED = (8, 128, 512)
#: Seconds that all trips of a loop take together, roughly.
_LOOP = 6e-4
_NAME = re.compile(r"product (\w+(?: left| right)?) (\d+) (\d+) (\d+)$")


def product_loops(*, small: bool = False) -> list[MeasuredLoop]:
    """Each loop multiplies m x k by k x n, and the result by n x k, which is the next one's left side."""
    out = []
    for dtype, lengths in (_SMALL if small else SIZES).items():
        out += [_product(dtype, m, n, k) for m in lengths for n in lengths for k in lengths]
    for side in ("left", "right"):
        out += [_turned(side, m, n, k) for m in _TURNED for n in _TURNED for k in _TURNED]
    return out


def _product(dtype: str, m: int, n: int, k: int) -> MeasuredLoop:
    body = [
        f"  %y = {dtype}[{m},{n}] dot(%state0, %state1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} @",
        f"  %x = {dtype}[{m},{k}] dot(%y, %state2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    ]
    shapes = (f"{dtype}[{m},{k}]", f"{dtype}[{k},{n}]", f"{dtype}[{n},{k}]")
    values = (1.0, 1.0 / k, 1.0 / n)
    return MeasuredLoop(
        f"product {dtype} {m} {n} {k}", shapes, "\n".join(body), ("%x", "%state1", "%state2"), _often(m, n, k), values
    )


def _turned(side: str, m: int, n: int, k: int) -> MeasuredLoop:
    """A product of which one side lies transposed; one element of the left side comes from the last result."""
    left, right = f"f32[{m},{k}]", f"f32[{k},{n}]"
    a, b = 1, 0
    if side == "left":
        left, a = f"f32[{k},{m}]", 0
    else:
        right, b = f"f32[{n},{k}]", 1
    body = [
        f"  %y = f32[{m},{n}] dot(%state0, %state1), lhs_contracting_dims={{{a}}}, rhs_contracting_dims={{{b}}} @",
        "  %first = f32[1,1] slice(%y), slice={[0:1], [0:1]}",
        "  %at = s32[] constant(0)",
        f"  %x = {left} dynamic-update-slice(%state0, %first, %at, %at)",
    ]
    name = f"product f32 {side} {m} {n} {k}"
    return MeasuredLoop(name, (left, right), "\n".join(body), ("%x", "%state1"), 2 * _often(m, n, k), (0.0, 0.0))


def _often(m: int, n: int, k: int) -> int:
    return int(max(3, min(1000, _LOOP / 2 / (2e-6 + 2 * m * n * k / 50e9))))


def products_fit(seconds: Mapping[str, float], call: float) -> dict[str, Products]:
    """(m, n, k, seconds) by type."""
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for name, spent in seconds.items():
        matched = _NAME.match(name)
        if matched:
            m, n, k = map(float, matched.groups()[1:])
            found.setdefault(matched[1], []).append((m, n, k, max(spent - call, 0.1 * spent)))
    return {dtype: tuple(sorted(points)) for dtype, points in found.items()}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A square convolution of images, channels last; ``groups`` of channels."""

    kind: str
    batch: int
    side: int
    channels: int
    size: int
    groups: int = 1


CONVOLUTIONS = (
    *(Convolution("tiles", 4, 32, c, 3) for c in (16, 32, 64, 128)),
    *(Convolution("patches", 4, 32, c, 5) for c in (4, 16, 64)),
    *(Convolution("channels", 4, 32, c, 3, c) for c in (32, 128)),
)


def convolution_loops() -> list[MeasuredLoop]:
    """Forward convolutions that leave the image's size, and gradients of their weights."""
    return [loop for c in CONVOLUTIONS for loop in (_forward(c), *([] if c.groups > 1 else [_gradient(c)]))]


def _forward(c: Convolution) -> MeasuredLoop:
    image = f"f32[{c.batch},{c.side},{c.side},{c.channels}]"
    weights = f"f32[{c.size},{c.size},{c.channels // c.groups},{c.channels}]"
    pad = c.size // 2
    window = f"{{size={c.size}x{c.size} pad={pad}_{pad}x{pad}_{pad}}}"
    groups = f", feature_group_count={c.groups}" if c.groups > 1 else ""
    line = f"  %r = {image} convolution(%state0, %state1), window={window}, dim_labels=b01f_01io->b01f{groups} @"
    value = 1.0 / (c.size * c.size * c.channels / c.groups)
    return MeasuredLoop(f"{c.kind} {c.channels}", (image, weights), line, ("%r", "%state1"), _trips(c), (1.0, value))


def _gradient(c: Convolution) -> MeasuredLoop:
    """What goes back is changed by every gradient in one element, and reads images of two states."""
    image = f"f32[{c.batch},{c.side},{c.side},{c.channels}]"
    pad = c.size // 2
    window = f"{{size={c.side}x{c.side} pad={pad}_{pad}x{pad}_{pad}}}"
    weights = f"f32[{c.size},{c.size},{c.channels},{c.channels}]"
    lines = [
        f"  %r = {weights} convolution(%state0, %state1), window={window}, dim_labels=f01b_i01o->01bf @",
        "  %one_element = f32[1,1,1,1] slice(%r), slice={[0:1], [0:1], [0:1], [0:1]}",
        "  %at = s32[] constant(0)",
        f"  %x = {image} dynamic-update-slice(%state0, %one_element, %at, %at, %at, %at)",
    ]
    name = f"{c.kind} gradient {c.channels}"
    return MeasuredLoop(name, (image, image), "\n".join(lines), ("%x", "%state1"), _trips(c), (0.0, 0.0))


def _trips(c: Convolution) -> int:
    return int(max(2, min(50, 2e-3 / (operations_of(c) / 40e9))))


def operations_of(c: Convolution) -> float:
    """Operations of a convolution or a gradient (padding counted)."""
    return 2.0 * c.batch * c.side**2 * c.channels**2 / c.groups * c.size**2


def convolutions_fit(seconds: Mapping[str, float], call: float) -> dict[str, Points]:
    """Operations per second by kind (and ``gradient`` of the weights) and number of channels."""
    found: dict[str, list[tuple[float, float]]] = {}
    for c in CONVOLUTIONS:
        for kind in (c.kind, f"{c.kind} gradient"):
            spent = seconds.get(f"{kind} {c.channels}")
            if spent is not None:
                found.setdefault(kind, []).append(
                    (float(c.channels), operations_of(c) / max(spent - call, 0.1 * spent))
                )
    return {kind: tuple(sorted(points)) for kind, points in found.items()}
