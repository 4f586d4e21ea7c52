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
from shardc.hlo.ir.literal import Literal
from shardc.hlo.text.literals import print_literal, read_literal
from shardc.hlo.text.notations.tiles import parse_groups, parse_pairs, print_groups, print_pairs
from shardc.hlo.text.scanner import STRING, Scanner, move_error, strip_comments, unquote
from shardc.hlo.text.shapes import read_shape, shape_of_text, with_layout
from shardc.hlo.text.windows import read_dim_labels, read_window, show_dim_labels, show_window

__all__ = ["COMMON", "KINDS", "AttributeKind", "quote", "read_attribute", "without_shardings"]

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
class AttributeKind:
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
        raise move_error(e, scanner.location(start)) from None


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
    return scanner.take_bracketed()


_IOTA_GROUPS = re.compile(r"\s*(\[[\d,\s]*\]\s*<=\s*\[[\d,\s]*\](?:\s*T\([\d,\s]*\))?)")
_MESH_GROUPS = re.compile(
    r"\s*(mesh\s*\[[^\]]*\](?:\s*,?\s*device_ids\s*=\s*\((?:\[[^\]]*\]\s*(?:T\([^)]*\)\s*)?|[\d,\s]*)\))?\s*,?\s*\{[^}]*\})"
)


def _cut_groups(scanner: Scanner) -> str:
    if scanner.peek() == "{":
        return scanner.take_bracketed()
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
        return scanner.take_bracketed()
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
    _shaped_literal(scanner)
    return scanner.text[start : scanner.pos].strip()


def _shaped_literal(scanner: Scanner) -> Literal:
    """``s32[2] {1, 2}``, ``(s32[], f32[]) (1, 2)`` or ``(s32[] 1, f32[] 2)``."""
    start = scanner.pos
    try:
        return read_literal(scanner, read_shape(scanner))
    except ParseError:
        scanner.pos = start
        if scanner.peek() != "(":
            raise
    scanner.expect("(")
    elements = []
    while not scanner.accept(")"):
        elements.append(_shaped_literal(scanner))
        if not scanner.accept(")"):
            scanner.expect(",", "between elements of a tuple constant")
            continue
        break
    return Literal(elements=tuple(elements))


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


_RANGE = re.compile(r"\[\s*(-?\d+)\s*:\s*(-?\d+)\s*(?::\s*(-?\d+)\s*)?\]\Z")


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
    numbers = [[int(n) for n in item.split("_")] for item in text.split("x")]
    return tuple((n[0], n[1], n[2] if len(n) == 3 else 0) for n in numbers)


def _show_padding(value: tuple[tuple[int, int, int], ...]) -> str:
    interior = any(i for _, _, i in value)
    return "x".join(f"{a}_{b}_{i}" if interior else f"{a}_{b}" for a, b, i in value)


def _read_float(text: str) -> float:
    return float(text)


def _show_float(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _read_literal(text: str) -> Any:
    return _shaped_literal(Scanner(text))


def _show_literal(value: Any) -> str:
    if value.elements is not None:
        return "(" + ", ".join(map(_show_literal, value.elements)) + ")"
    return f"{with_layout(value.shape)} {print_literal(value)}"


def _read_shapes(text: str) -> Any:
    return shape_of_text("(" + text[1:-1] + ")").elements


_FRONTEND_KEY = re.compile(r"\s*([A-Za-z_][\w.\-]*)=\s*")


def _read_frontend(text: str) -> Frontend:
    """Pairs of name and value; a value in braces is kept as text, a quoted one without its quotes."""
    scanner = Scanner(strip_comments(text), raw=text)
    scanner.expect("{")
    if scanner.accept("}"):
        return ()
    pairs: dict[str, str] = {}
    while True:
        name = scanner.take(_FRONTEND_KEY, "name=value").group(1)
        pairs[name] = _read_config(_cut_config(scanner))
        if scanner.accept("}"):
            return tuple(pairs.items())
        scanner.expect(",", "between frontend attributes")


def _cut_config(scanner: Scanner) -> str:
    """Text in braces is no HLO: what looks like a comment belongs to it."""
    if scanner.peek() != "{":
        return _cut_string(scanner)
    start = scanner.pos
    scanner.take_bracketed()
    return scanner.raw[start : scanner.pos]


def _cut_frontend(scanner: Scanner) -> str:
    scanner.skip_space()
    start = scanner.pos
    scanner.take_bracketed()
    return scanner.raw[start : scanner.pos]


def _read_config(text: str) -> str:
    """A free text: kept as it is when in braces, without its quotes when quoted."""
    return text if text[0] == "{" else unquote(text)


def quote(text: str) -> str:
    """A quoted string that reads back as ``text``."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else _quote_controls(text)


def _quote_controls(text: str) -> str:
    codes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}

    def show(c: str) -> str:
        if c in codes or c.isprintable():
            return codes.get(c, c)
        return "".join(f"\\{byte:03o}" for byte in c.encode("utf-8", "surrogateescape"))

    return '"' + "".join(map(show, text)) + '"'


def _show_frontend(value: Frontend) -> str:
    return "{" + ",".join(f"{name}={_show_config(v)}" for name, v in value) + "}"


def _show_config(value: str) -> str:
    if value.startswith("{"):
        scanner = Scanner(value)
        try:
            if scanner.take_bracketed() == value:
                return value
        except ParseError:
            pass
    return quote(value)


def _same(text: Any) -> str:
    return str(text)


_BOOLS = re.compile(r"\s*(true|false|\{\s*(?:(?:true|false)\s*(?:,\s*(?:true|false)\s*)*)?\})")


def _cut_bools(scanner: Scanner) -> str:
    return scanner.take(_BOOLS, "true, false or a list of them").group(1)


def _read_bools(text: str) -> tuple[bool, ...]:
    return tuple(item == "true" for item in (_items(text) if text[0] == "{" else [text]))


def _show_bool(value: bool) -> str:
    return "true" if value else "false"


def without_shardings(frontend: Frontend) -> Frontend:
    """Frontend attributes but for Shardy's, which would speak of another sharding than the instruction's own."""
    return tuple(pair for pair in frontend if not pair[0].startswith("xla.sdy."))


_PAD = r"-?\d+_-?\d+(?:_\d+)?"
_NUMBER_TEXT = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|-?inf|nan"

KINDS: Mapping[str, AttributeKind] = MappingProxyType(
    {
        "int": AttributeKind(_by_pattern(r"-?\d+", "an integer"), int, str),
        "float": AttributeKind(_by_pattern(_NUMBER_TEXT, "a number"), _read_float, _show_float),
        "bool": AttributeKind(_by_pattern(r"true|false", "true or false"), "true".__eq__, _show_bool),
        "bools": AttributeKind(_cut_bools, _read_bools, lambda v: "{" + ",".join(map(_show_bool, v)) + "}"),
        "str": AttributeKind(_cut_string, unquote, quote),
        "enum": AttributeKind(_by_pattern(r"[A-Za-z_][\w.\-]*", "a word"), _same, _same),
        "ints": AttributeKind(_cut_bracketed, _read_ints, _show_ints),
        "enums": AttributeKind(_cut_bracketed, _read_enums, lambda v: "{" + ",".join(v) + "}"),
        "slice": AttributeKind(_cut_bracketed, _read_slice, _show_slice),
        "padding": AttributeKind(
            _by_pattern(rf"{_PAD}(?:x{_PAD})*", "padding such as 0_1x0_0"), _read_padding, _show_padding
        ),
        "window": AttributeKind(_cut_bracketed, read_window, show_window),
        "dim_labels": AttributeKind(
            _by_pattern(r"[\w?]+->[\w?]+", "b01f_01io->b01f"), read_dim_labels, show_dim_labels
        ),
        "groups": AttributeKind(_cut_groups, parse_groups, print_groups),
        "pairs": AttributeKind(_cut_bracketed, parse_pairs, print_pairs),
        "literal": AttributeKind(_cut_literal, _read_literal, _show_literal),
        "shape": AttributeKind(_cut_shape, shape_of_text, str),
        "shapes": AttributeKind(_cut_bracketed, _read_shapes, lambda v: "{" + ", ".join(map(with_layout, v)) + "}"),
        "raw": AttributeKind(_cut_raw, _same, _same),
        "config": AttributeKind(_cut_config, _read_config, _show_config),
        "frontend": AttributeKind(_cut_frontend, _read_frontend, _show_frontend),
    }
)
