"""Windows and dimension labels of convolutions in HLO text."""

from __future__ import annotations

import re

from shardc.hlo.errors import ParseError
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.text.scanner import Scanner
from shardc.hlo.units import count_text

__all__ = ["read_dim_labels", "read_window", "show_dim_labels", "show_window"]

_WINDOW_FIELD = re.compile(r"\s*([a-z_]+)=\s*([-\dx_]+)")
_SIZES = re.compile(r"-?\d+\Z|\d+(?:x\d+)+\Z")
_PADS = re.compile(r"-?\d+_-?\d+(?:x-?\d+_-?\d+)*\Z")
_WINDOW_FIELDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


def read_window(text: str) -> Window:
    """``{size=3x3 stride=2x2 pad=0_1x0_1}``"""
    scanner = Scanner(text)
    scanner.expect("{")
    fields: dict[str, list[str]] = {}
    while (found := scanner.match(_WINDOW_FIELD)) is not None:
        name, value = found.groups()
        if name not in _WINDOW_FIELDS or name in fields:
            raise scanner.error(f"unexpected {name!r} in window={text}", at=found.start(1))
        if not (_PADS if name == "pad" else _SIZES).match(value):
            raise scanner.error(f"window={text}: malformed {name}={value}", at=found.start(2))
        fields[name] = value.split("x")
    scanner.expect("}", f"in window={text}")
    rank = len(fields.get("size", ()))
    for name, values in fields.items():
        # XLA reads as many reversals as there are dimensions, whatever their number.
        if len(values) != rank and name != "rhs_reversal":
            raise scanner.error(f"window={text}: {name} does not fit {count_text(rank, 'dimension')}", at=0)
    return Window(tuple(_window_dim(fields, i) for i in range(rank)))


def _window_dim(fields: dict[str, list[str]], i: int) -> WindowDim:
    def number(name: str, default: int) -> int:
        return int(fields[name][i]) if name in fields else default

    low, high = fields["pad"][i].split("_") if "pad" in fields else ("0", "0")
    return WindowDim(
        size=number("size", 1),
        stride=number("stride", 1),
        pad_low=int(low),
        pad_high=int(high),
        lhs_dilate=number("lhs_dilate", 1),
        rhs_dilate=number("rhs_dilate", 1),
        reversal=fields.get("rhs_reversal", [])[i : i + 1] == ["1"],
    )


def show_window(value: Window) -> str:
    """The window's text, with what differs from a plain one."""
    dims = value.dims
    parts = []
    if dims:
        parts.append("size=" + "x".join(str(d.size) for d in dims))
    for name, field, default in (
        ("stride", "stride", 1),
        ("pad", "", 0),
        ("lhs_dilate", "lhs_dilate", 1),
        ("rhs_dilate", "rhs_dilate", 1),
        ("rhs_reversal", "reversal", 0),
    ):
        if name == "pad":
            if any(d.pad_low or d.pad_high for d in dims):
                parts.append("pad=" + "x".join(f"{d.pad_low}_{d.pad_high}" for d in dims))
        elif any(getattr(d, field) != default for d in dims):
            parts.append(f"{name}=" + "x".join(str(int(getattr(d, field))) for d in dims))
    return "{" + " ".join(parts) + "}"


def read_dim_labels(text: str) -> ConvDims:
    """``b01f_01io->b01f``; ``?`` stands for a dimension without a role."""
    lhs, _, rest = text.partition("_")
    rhs, _, out = rest.partition("->")
    parts = [_labels(lhs, "bf", text), _labels(rhs, "io", text), _labels(out, "bf", text)]
    if len({len(spatial) for _, _, spatial in parts}) != 1:
        raise ParseError(f"dim_labels={text}: spatial dimensions differ", where=Scanner(text).location(0))
    (b, f, s), (i, o, k), (ob, of, os) = parts
    return ConvDims(b, f, s, i, o, k, ob, of, os)


def _labels(labels: str, roles: str, text: str) -> tuple[int, int, tuple[int, ...]]:
    spatial = sorted((c for c in labels if c.isdigit()), key=int)
    wanted = sorted(roles + "".join(map(str, range(len(spatial)))))
    if sorted(labels.replace("?", "")) != wanted or len(spatial) > 9:
        raise ParseError(
            f"malformed dim_labels={text}", where=Scanner(text).location(0), fix="write b01f_01io->b01f or similar"
        )
    return labels.index(roles[0]), labels.index(roles[1]), tuple(labels.index(c) for c in spatial)


def show_dim_labels(value: ConvDims) -> str:
    """The labels' text."""

    def labels(first: int, second: int, spatial: tuple[int, ...], roles: str) -> str:
        marks = {first: roles[0], second: roles[1]} | {d: str(n) for n, d in enumerate(spatial)}
        return "".join(marks.get(i, "?") for i in range(max(marks) + 1))

    lhs = labels(value.lhs_batch, value.lhs_feature, value.lhs_spatial, "bf")
    rhs = labels(value.rhs_input_feature, value.rhs_output_feature, value.rhs_spatial, "io")
    return f"{lhs}_{rhs}->{labels(value.out_batch, value.out_feature, value.out_spatial, 'bf')}"
