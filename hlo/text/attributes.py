"""Attributes of instructions: one row per kind of value (see the op set), with how it is cut, read and printed.

*Cutting* takes the value's text from the scanner; *reading* turns that text into a value and knows nothing else,
so equal texts are read once. Computations, sharding, metadata and control predecessors need more than their text and
are handled by reader and printer themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import ParseError
from shardc.hlo.notation import parse_groups, parse_pairs, print_groups, print_pairs
from shardc.hlo.opset import ConvDims, Window, WindowDim
from shardc.hlo.text.literals import print_literal, read_literal
from shardc.hlo.text.scanner import STRING, Scanner, moved, unquote
from shardc.hlo.text.shapes import read_shape, shape_of_text, with_layout

__all__ = ["COMMON", "KINDS", "Kind", "quote", "read_attribute", "without_shardings"]

#: Pairs of name and value, see `_read_frontend`.
Frontend = tuple[tuple[str, str], ...]

#: Attributes that any instruction may carry; sharding, metadata and control-predecessors are read elsewhere.
COMMON: Mapping[str, str] = MappingProxyType(
    {
        "sharding": "sharding",
        "metadata": "metadata",
        "frontend_attributes": "frontend",
        "backend_config": "config",
        "control-predecessors": "names",
        "origin": "raw",
        "statistics": "raw",
        "parameter_replication": "raw",
    }
)


@dataclass(frozen=True, slots=True)
class Kind:
    """``cut(scanner)`` gives the value's text, ``read(text)`` its value, ``show(value)`` the text again."""

    cut: Callable[[Scanner], str]
    read: Callable[[str], Any]
    show: Callable[[Any], str]


def read_attribute(scanner: Scanner, kind: str) -> Any:
    """The value at the scanner's position; errors carry their place in the file."""
    row = KINDS[kind]
    scanner.skip_space()
    start = scanner.pos
    text = row.cut(scanner)
    try:
        return _read_cached(kind, text) if len(text) < 4096 else row.read(text)
    except ParseError as e:
        raise moved(e, scanner.location(start)) from None


@lru_cache(maxsize=65536)
def _read_cached(kind: str, text: str) -> Any:
    return KINDS[kind].read(text)


# --- cutting ------------------------------------------------------------------------------------------------


def _by_pattern(pattern: str, what: str) -> Callable[[Scanner], str]:
    compiled = re.compile(r"\s*(" + pattern + r")(?![\w.])", re.S)

    def cut(scanner: Scanner) -> str:
        return scanner.take(compiled, what).group(1)

    return cut


def _cut_bracketed(scanner: Scanner) -> str:
    return scanner.bracketed()


_IOTA_GROUPS = re.compile(r"\s*(\[[\d,\s]*\]\s*<=\s*\[[\d,\s]*\](?:\s*T\([\d,\s]*\))?)")
_MESH_GROUPS = re.compile(
    r"\s*(mesh\s*\[[^\]]*\](?:\s*,?\s*device_ids\s*=\s*\((?:\[[^\]]*\]\s*T\([^)]*\)|[\d,\s]*)\))?\s*\{[^}]*\})"
)


def _cut_groups(scanner: Scanner) -> str:
    if scanner.peek() == "{":
        return scanner.bracketed()
    found = scanner.match(_IOTA_GROUPS) or scanner.match(_MESH_GROUPS)
    if found is None:
        raise scanner.error(
            f"malformed replica groups: {scanner.excerpt()}",
            fix="write {{0,1},{2,3}}, [2,4]<=[4,2]T(1,0) or mesh['x'=2,'y'=4] {'y'}",
        )
    return found.group(1)


_BARE = re.compile(r"\s*([^\s,{}()\"]+)")


def _cut_raw(scanner: Scanner) -> str:
    if scanner.peek() in ("{", "(", "["):
        return scanner.bracketed()
    scanner.skip_space()
    quoted = scanner.match(STRING)
    return quoted.group() if quoted is not None else scanner.take(_BARE, "a value").group(1)


def _cut_string(scanner: Scanner) -> str:
    scanner.skip_space()
    return scanner.take(STRING, "a quoted string").group()


def _cut_shape(scanner: Scanner) -> str:
    start = scanner.pos
    read_shape(scanner)
    return scanner.text[start : scanner.pos].strip()


def _cut_literal(scanner: Scanner) -> str:
    start = scanner.pos
    read_literal(scanner, read_shape(scanner))
    return scanner.text[start : scanner.pos].strip()


# --- reading and showing ------------------------------------------------------------------------------------


def _items(text: str) -> list[str]:
    inner = text[1:-1].strip()
    return [item.strip() for item in inner.split(",")] if inner else []


_INTEGER = re.compile(r"-?\d+\Z")


def _read_ints(text: str) -> tuple[int, ...]:
    items = _items(text)
    for item in items:
        if not _INTEGER.match(item):
            raise ParseError(f"expected integers, found {text}", where=Scanner(text).location(0))
    return tuple(map(int, items))


def _show_ints(value: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, value)) + "}"


_WORD = re.compile(r"[\w.]+\Z")


def _read_enums(text: str) -> tuple[str, ...]:
    items = _items(text)
    if not all(_WORD.match(i) for i in items):
        raise ParseError(f"expected words, found {text}", where=Scanner(text).location(0))
    return tuple(items)


_RANGE = re.compile(r"\[\s*(\d+)\s*:\s*(\d+)\s*(?::\s*(\d+)\s*)?\]\Z")


def _read_slice(text: str) -> tuple[tuple[int, int, int], ...]:
    ranges = []
    for item in _items(text):
        found = _RANGE.match(item)
        if found is None:
            raise ParseError(f"malformed range {item!r} in slice={text}", where=Scanner(text).location(0))
        start, limit, stride = found.groups()
        ranges.append((int(start), int(limit), int(stride or 1)))
    return tuple(ranges)


def _show_slice(value: tuple[tuple[int, int, int], ...]) -> str:
    return "{" + ", ".join(f"[{a}:{b}]" if s == 1 else f"[{a}:{b}:{s}]" for a, b, s in value) + "}"


def _read_padding(text: str) -> tuple[tuple[int, int, int], ...]:
    dims = []
    for item in text.split("x") if text else ():
        numbers = item.split("_")
        if len(numbers) not in (2, 3) or not all(_INTEGER.match(n) for n in numbers):
            raise ParseError(f"malformed padding {text!r}", where=Scanner(text).location(0), fix="write low_high x ...")
        dims.append((int(numbers[0]), int(numbers[1]), int(numbers[2]) if len(numbers) == 3 else 0))
    return tuple(dims)


def _show_padding(value: tuple[tuple[int, int, int], ...]) -> str:
    interior = any(i for _, _, i in value)
    return "x".join(f"{a}_{b}_{i}" if interior else f"{a}_{b}" for a, b, i in value)


_WINDOW_FIELD = re.compile(r"\s*([a-z_]+)\s*=\s*([-\dx_]+)\s*,?")
_WINDOW_FIELDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


def _read_window(text: str) -> Window:
    scanner = Scanner(text)
    scanner.expect("{")
    fields: dict[str, list[str]] = {}
    while (found := scanner.match(_WINDOW_FIELD)) is not None:
        name, value = found.groups()
        if name not in _WINDOW_FIELDS or name in fields:
            raise scanner.error(f"unexpected {name!r} in window={text}", at=found.start(1))
        fields[name] = value.split("x")
    scanner.expect("}", f"in window={text}")
    sizes = fields.get("size", [])
    if not sizes and fields:
        raise scanner.error("a window needs a size", at=0)
    return Window(tuple(_window_dim(scanner, fields, i, text) for i in range(len(sizes))))


def _window_dim(scanner: Scanner, fields: dict[str, list[str]], i: int, text: str) -> WindowDim:
    rank = len(fields["size"])

    def number(name: str, default: int) -> int:
        values = fields.get(name)
        if values is None:
            return default
        if len(values) != rank or not _INTEGER.match(values[i]):
            raise scanner.error(f"window={text}: {name} does not fit {rank} dimensions", at=0)
        return int(values[i])

    low = high = 0
    if "pad" in fields:
        pads = fields["pad"]
        numbers = pads[i].split("_") if len(pads) == rank else []
        if len(numbers) != 2 or not all(_INTEGER.match(n) for n in numbers):
            raise scanner.error(f"window={text}: pad does not fit {rank} dimensions", at=0)
        low, high = int(numbers[0]), int(numbers[1])
    return WindowDim(
        size=number("size", 1),
        stride=number("stride", 1),
        pad_low=low,
        pad_high=high,
        lhs_dilate=number("lhs_dilate", 1),
        rhs_dilate=number("rhs_dilate", 1),
        reversal=number("rhs_reversal", 0) != 0,
    )


def _show_window(value: Window) -> str:
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


def _read_dim_labels(text: str) -> ConvDims:
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


def _show_dim_labels(value: ConvDims) -> str:
    def labels(first: int, second: int, spatial: tuple[int, ...], roles: str) -> str:
        marks = {first: roles[0], second: roles[1]} | {d: str(n) for n, d in enumerate(spatial)}
        return "".join(marks.get(i, "?") for i in range(max(marks) + 1))

    lhs = labels(value.lhs_batch, value.lhs_feature, value.lhs_spatial, "bf")
    rhs = labels(value.rhs_input_feature, value.rhs_output_feature, value.rhs_spatial, "io")
    return f"{lhs}_{rhs}->{labels(value.out_batch, value.out_feature, value.out_spatial, 'bf')}"


def _read_float(text: str) -> float:
    return float(text)


def _show_float(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _read_literal(text: str) -> Any:
    scanner = Scanner(text)
    return read_literal(scanner, read_shape(scanner))


def _show_literal(value: Any) -> str:
    return f"{with_layout(value.shape)} {print_literal(value)}"


def _read_shapes(text: str) -> Any:
    return shape_of_text("(" + text[1:-1] + ")").elements


_FRONTEND_KEY = re.compile(r"\s*([A-Za-z_][\w.\-]*)\s*=\s*")


def _read_frontend(text: str) -> Frontend:
    """Pairs of name and value; a value in braces is kept as text, a quoted one without its quotes."""
    scanner = Scanner(text)
    scanner.expect("{")
    pairs: list[tuple[str, str]] = []
    while not scanner.accept("}"):
        name = scanner.take(_FRONTEND_KEY, "name=value").group(1)
        pairs.append((name, _read_config(_cut_config(scanner))))
        if scanner.accept("}"):
            break
        scanner.expect(",", "between frontend attributes")
    return tuple(pairs)


def _cut_config(scanner: Scanner) -> str:
    return scanner.bracketed() if scanner.peek() == "{" else _cut_string(scanner)


def _read_config(text: str) -> str:
    """A free text: kept as it is when in braces, without its quotes when quoted."""
    return text if text[0] == "{" else unquote(text)


def quote(text: str) -> str:
    """A quoted string that reads back as ``text``."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else _quote_controls(text)


def _quote_controls(text: str) -> str:
    codes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return (
        '"' + "".join(codes.get(c) or (c if c.isprintable() or ord(c) > 126 else f"\\{ord(c):03o}") for c in text) + '"'
    )


def _show_frontend(value: Frontend) -> str:
    return "{" + ",".join(f"{name}={_show_config(v)}" for name, v in value) + "}"


def _show_config(value: str) -> str:
    if value.startswith("{"):
        scanner = Scanner(value)
        try:
            if scanner.bracketed() == value:
                return value
        except ParseError:
            pass
    return quote(value)


def _same(text: Any) -> str:
    return str(text)


def _show_bool(value: bool) -> str:
    return "true" if value else "false"


def without_shardings(frontend: Frontend) -> Frontend:
    """Frontend attributes but for Shardy's, which would speak of another sharding than the instruction's own."""
    return tuple(pair for pair in frontend if not pair[0].startswith("xla.sdy."))


_NUMBER_TEXT = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|-?inf|nan"

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "int": Kind(_by_pattern(r"-?\d+", "an integer"), int, str),
        "float": Kind(_by_pattern(_NUMBER_TEXT, "a number"), _read_float, _show_float),
        "bool": Kind(_by_pattern(r"true|false", "true or false"), "true".__eq__, _show_bool),
        "str": Kind(_cut_string, unquote, quote),
        "enum": Kind(_by_pattern(r"[A-Za-z_][\w.\-]*", "a word"), _same, _same),
        "ints": Kind(_cut_bracketed, _read_ints, _show_ints),
        "enums": Kind(_cut_bracketed, _read_enums, lambda v: "{" + ",".join(v) + "}"),
        "slice": Kind(_cut_bracketed, _read_slice, _show_slice),
        "padding": Kind(_by_pattern(r"[-\dx_]*", "padding such as 0_1x0_0"), _read_padding, _show_padding),
        "window": Kind(_cut_bracketed, _read_window, _show_window),
        "dim_labels": Kind(_by_pattern(r"[\w?]+->[\w?]+", "b01f_01io->b01f"), _read_dim_labels, _show_dim_labels),
        "groups": Kind(_cut_groups, parse_groups, print_groups),
        "pairs": Kind(_cut_bracketed, parse_pairs, print_pairs),
        "literal": Kind(_cut_literal, _read_literal, _show_literal),
        "shape": Kind(_cut_shape, shape_of_text, str),
        "shapes": Kind(_cut_bracketed, _read_shapes, lambda v: "{" + ", ".join(map(str, v)) + "}"),
        "raw": Kind(_cut_raw, _same, _same),
        "config": Kind(_cut_config, _read_config, _show_config),
        "frontend": Kind(_cut_bracketed, _read_frontend, _show_frontend),
    }
)
