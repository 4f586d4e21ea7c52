"""``metadata={op_name="..." source_file="x.py" source_line=3}`` and the stack tables that newer XLA prints once.

A module may carry tables of file names, function names, file locations and stack frames; an instruction then names
only a frame, and its source file and line come from the tables. The tables stay with the module
(``attrs["stack_frames"]``) so that they print again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from shardc.hlo.errors import ParseError
from shardc.hlo.ir.ir import Instruction, Metadata, Module
from shardc.hlo.text.attributes import quote
from shardc.hlo.text.scanner import STRING, Scanner, move_error, unquote

__all__ = [
    "FileLocation",
    "MetadataReader",
    "StackFrames",
    "metadata_as_written",
    "print_metadata",
    "read_stack_frames",
]


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A row of FileLocations: ids into the names, and the range of lines and columns."""

    file_name_id: int = 0
    function_name_id: int = 0
    line: int = 0
    end_line: int = 0
    column: int = 0
    end_column: int = 0


@dataclass(frozen=True, slots=True)
class StackFrames:
    """The tables. Ids count from 1; ``frames`` holds (file_location_id, parent_frame_id), where parent 1 means that
    there is none, and parent n + 1 is frame n."""

    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    locations: tuple[FileLocation, ...] = ()
    frames: tuple[tuple[int, int], ...] = ()

    def location(self, frame: int) -> FileLocation | None:
        """Where a frame lies, or None when the tables do not know it."""
        if 1 <= frame <= len(self.frames):
            location = self.frames[frame - 1][0]
            if 1 <= location <= len(self.locations):
                return self.locations[location - 1]
        return None

    def file(self, location: FileLocation) -> str:
        return self.files[location.file_name_id - 1] if 1 <= location.file_name_id <= len(self.files) else ""

    def __str__(self) -> str:
        """The four tables; XLA wants all of them, in this order."""
        rows = {
            "FileNames": map(quote, self.files),
            "FunctionNames": map(quote, self.functions),
            "FileLocations": map(_show_location, self.locations),
            "StackFrames": [f"{{file_location_id={at} parent_frame_id={parent}}}" for at, parent in self.frames],
        }
        blocks = [[title, *(f"{i} {row}" for i, row in enumerate(rows[title], 1))] for title in rows]
        return "\n\n".join("\n".join(block) for block in blocks)


def _show_location(r: FileLocation) -> str:
    return (
        f"{{file_name_id={r.file_name_id} function_name_id={r.function_name_id} line={r.line} "
        f"end_line={r.end_line} column={r.column} end_column={r.end_column}}}"
    )


_NAME_ROW = re.compile(r"\s*-?\d+\s*(?=[\"'])")
_FIELD_ROW = re.compile(r"\s*-?\d+\s*\{([^{}]*)\}")
_FIELD = re.compile(r"\s*,?\s*([a-z_]+)=\s*(-?\d+)\s*")
_LOCATION_FIELDS = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
_NO_PARENT = 1


def read_stack_frames(scanner: Scanner) -> StackFrames | None:
    """The tables at the scanner's position, None when there are none. Rows are numbered as they come."""
    if not scanner.accept("FileNames"):
        return None
    files = _name_rows(scanner)
    scanner.expect("FunctionNames", "after FileNames")
    functions = _name_rows(scanner)
    scanner.expect("FileLocations", "after FunctionNames")
    locations = [FileLocation(**row) for row in _field_rows(scanner, _LOCATION_FIELDS)]
    scanner.expect("StackFrames", "after FileLocations")
    rows = _field_rows(scanner, ("file_location_id", "parent_frame_id"), {"parent_frame_id": _NO_PARENT})
    frames = tuple((row["file_location_id"], row["parent_frame_id"]) for row in rows)
    return StackFrames(tuple(files), tuple(functions), tuple(locations), frames)


def _name_rows(scanner: Scanner) -> list[str]:
    names = []
    while scanner.match(_NAME_ROW) is not None:
        names.append(unquote(scanner.take(STRING, "a quoted name").group()))
    return names


def _field_rows(
    scanner: Scanner, names: tuple[str, ...], defaults: Mapping[str, int] = MappingProxyType({})
) -> list[dict[str, int]]:
    rows = []
    while (found := scanner.match(_FIELD_ROW)) is not None:
        text, position = found.group(1), 0
        row: dict[str, int] = {}
        while (item := _FIELD.match(text, position)) is not None and item.group(1) not in row:
            row[item.group(1)] = _int32(int(item.group(2)), scanner, found.start(1))
            position = item.end()
        if text[position:].strip() or not set(names) - set(defaults) <= set(row) <= set(names):
            raise scanner.error(f"a row has the fields {', '.join(names)}, found {{{text}}}", at=found.start(1))
        rows.append({**defaults, **row})
    return rows


def _int32(value: int, scanner: Scanner, at: int) -> int:
    if not -(1 << 31) <= value < 1 << 31:
        raise scanner.error(f"{value} does not fit 32 bits", at=at)
    return value


# --- metadata -----------------------------------------------------------------------------------------------

_ITEM = re.compile(
    r"\s*,?\s*([a-z_]+)=\s*"
    r'("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|-?\d+|\{\s*(?:[0-3]\s*(?:,\s*[0-3]\s*)*)?\})\s*',
    re.S,
)
_TEXTS = ("op_type", "op_name", "source_file")
_NUMBERS = ("source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id")
_KEPT_TEXTS = ("deduplicated_name", "scheduling_name", "metadata_payload")
_KEPT = (*_KEPT_TEXTS, "profile_type")


class MetadataReader:
    """Reads metadata of one text, whose stack tables are ``frames``; equal texts are read once."""

    __slots__ = ("bare", "frames", "known", "lines")

    def __init__(self, frames: StackFrames | None) -> None:
        self.frames = frames
        self.known: dict[str, tuple[Metadata, str]] = {}
        self.bare = Metadata()
        self.lines = (0, 1)

    def add_place(self, metadata: Metadata | None, scanner: Scanner, at: int) -> Metadata | None:
        """Metadata that says at which line and column of its file the instruction at ``at`` stands."""
        if not scanner.file:
            return metadata
        position, line = self.lines if self.lines[0] <= at else (0, 1)
        self.lines = (at, line + scanner.text.count("\n", position, at))
        column = at - scanner.text.rfind("\n", 0, at)
        return replace(metadata or self.bare, place=f"{scanner.file}:{self.lines[1]}:{column}")

    def read(self, scanner: Scanner) -> tuple[Metadata, str]:
        """The metadata at the scanner's position, and the text of the items that `Metadata` has no field for."""
        scanner.skip_space()
        start = scanner.pos
        text = scanner.take_bracketed()
        found = self.known.get(text)
        if found is None:
            try:
                bare, extra = _read(text)
            except ParseError as e:
                raise move_error(e, scanner.location(start)) from None
            found = self.known[text] = (_resolve(bare, self.frames), extra)
        return found


def _read(text: str) -> tuple[Metadata, str]:
    scanner = Scanner(text)
    texts: dict[str, str] = {}
    numbers: dict[str, int] = {}
    kept: dict[str, str] = {}
    position, end = 1, len(text) - 1
    while text[position:end].strip():
        found = _ITEM.match(text, position)
        if found is None:
            raise scanner.error(f"malformed metadata near {text[position : position + 30]!r}", at=position)
        name, value = found.groups()
        if name in texts or name in numbers or name in kept:
            raise scanner.error(f"metadata {name} is given twice", at=found.start(1))
        if name in _TEXTS and value[0] in "\"'":
            texts[name] = unquote(value)
        elif name in _NUMBERS and value[0] not in "\"'{":
            numbers[name] = _int32(int(value), scanner, found.start(2))
        elif (name in _KEPT_TEXTS and value[0] in "\"'") or (name == "profile_type" and value[0] == "{"):
            kept[name] = value
        else:
            known = ", ".join((*_TEXTS, *_NUMBERS, *_KEPT))
            raise scanner.error(f"unexpected metadata {name}={value}", at=found.start(1), fix=f"known: {known}")
        position = found.end()
    return Metadata(**texts, **numbers), " ".join(f"{k}={v}" for k, v in kept.items())  # type: ignore[arg-type]


def _resolve(metadata: Metadata, frames: StackFrames | None) -> Metadata:
    """Fill in source file and line from the stack tables."""
    at = frames.location(metadata.stack_frame_id) if frames is not None else None
    if frames is None or at is None or metadata.source_file:
        return metadata
    return Metadata(
        metadata.op_name,
        metadata.op_type,
        frames.file(at),
        at.line,
        at.column,
        at.end_line,
        at.end_column,
        metadata.stack_frame_id,
    )


def metadata_as_written(module: Module) -> dict[Instruction, Metadata | None]:
    """Metadata of entry parameters: the people's name of an argument is written as its op_name."""
    out: dict[Instruction, Metadata | None] = {}
    for parameter, name in zip(module.parameters, module.arg_names, strict=False):
        own = parameter.metadata
        out[parameter] = own if not name else replace(own or Metadata(), op_name=name)
    return out


def print_metadata(metadata: Metadata, extra: str = "", frames: StackFrames | None = None) -> str:
    """The text behind ``metadata=``; a frame that the tables know stands for file and lines."""
    parts = []
    if metadata.op_type:
        parts.append(f"op_type={quote(metadata.op_type)}")
    if metadata.op_name:
        parts.append(f"op_name={quote(metadata.op_name)}")
    bare = Metadata(metadata.op_name, metadata.op_type, stack_frame_id=metadata.stack_frame_id)
    by_frame = metadata.stack_frame_id != 0 and _resolve(bare, frames) == metadata
    if not by_frame:
        if metadata.source_file:
            parts.append(f"source_file={quote(metadata.source_file)}")
        parts += [f"{n}={getattr(metadata, n)}" for n in _NUMBERS[:4] if getattr(metadata, n)]
    if metadata.stack_frame_id and (by_frame or (frames is not None and metadata.source_file)):
        parts.append(f"stack_frame_id={metadata.stack_frame_id}")
    if extra:
        parts.append(extra)
    return "{" + " ".join(parts) + "}"
