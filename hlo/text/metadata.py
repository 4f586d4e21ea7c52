"""``metadata={op_name="..." source_file="x.py" source_line=3}`` and the stack tables that newer XLA prints once.

A module may carry tables of file names, function names, file locations and stack frames; an instruction then names
only a frame, and its source file and line come from the tables. The tables stay with the module
(``attrs["stack_frames"]``) so that they print again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from shardc.hlo.errors import ParseError
from shardc.hlo.ir import Instruction, Metadata, Module
from shardc.hlo.text.attributes import quote
from shardc.hlo.text.scanner import STRING, Scanner, unquote

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
    """The tables. Ids count from 1; ``frames`` holds (file_location_id, parent_frame_id), 0 for an absent one."""

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
        blocks = []
        for title, names in (("FileNames", self.files), ("FunctionNames", self.functions)):
            if names:
                blocks.append("\n".join([title, *(f"{i} {quote(n)}" for i, n in enumerate(names, 1))]))
        if self.locations:
            blocks.append(
                "\n".join(["FileLocations", *(_show_location(i, r) for i, r in enumerate(self.locations, 1))])
            )
        if self.frames:
            rows = [
                f"{i} {{file_location_id={at}" + (f" parent_frame_id={parent}}}" if parent else "}")
                for i, (at, parent) in enumerate(self.frames, 1)
            ]
            blocks.append("\n".join(["StackFrames", *rows]))
        return "\n\n".join(blocks)


def _show_location(number: int, r: FileLocation) -> str:
    return (
        f"{number} {{file_name_id={r.file_name_id} function_name_id={r.function_name_id} line={r.line} "
        f"end_line={r.end_line} column={r.column} end_column={r.end_column}}}"
    )


_TABLE = re.compile(r"\s*(FileNames|FunctionNames|FileLocations|StackFrames)\b")
_NAME_ROW = re.compile(r"\s*(\d+)\s+(?=\")")
_FIELD_ROW = re.compile(r"\s*(\d+)\s*\{([^{}]*)\}")
_FIELD = re.compile(r"\s*([a-z_]+)\s*=\s*(\d+)\s*,?\s*")


def read_stack_frames(scanner: Scanner) -> StackFrames | None:
    """The tables at the scanner's position, None when there are none."""
    names: dict[str, list[str]] = {"FileNames": [], "FunctionNames": []}
    rows: dict[str, list[dict[str, int]]] = {"FileLocations": [], "StackFrames": []}
    found = scanner.match(_TABLE)
    if found is None:
        return None
    while found is not None:
        title = found.group(1)
        if title in names:
            while (row := scanner.match(_NAME_ROW)) is not None:
                _check_number(scanner, row, len(names[title]), title)
                names[title].append(unquote(scanner.take(STRING, "a quoted name").group()))
        else:
            while (row := scanner.match(_FIELD_ROW)) is not None:
                _check_number(scanner, row, len(rows[title]), title)
                rows[title].append({k: int(v) for k, v in _FIELD.findall(row.group(2))})
        found = scanner.match(_TABLE)
    fields = FileLocation.__dataclass_fields__
    locations = tuple(FileLocation(**{k: v for k, v in r.items() if k in fields}) for r in rows["FileLocations"])
    frames = tuple((r.get("file_location_id", 0), r.get("parent_frame_id", 0)) for r in rows["StackFrames"])
    return StackFrames(tuple(names["FileNames"]), tuple(names["FunctionNames"]), locations, frames)


def _check_number(scanner: Scanner, row: re.Match[str], count: int, title: str) -> None:
    if int(row.group(1)) != count + 1:
        raise scanner.error(f"{title}: row {row.group(1)} comes where {count + 1} is due", at=row.start(1))


# --- metadata -----------------------------------------------------------------------------------------------

_ITEM = re.compile(r'([a-z_]+)\s*=\s*("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|-?\d+|\{[^{}]*\})[\s,]*', re.S)
_TEXTS = ("op_type", "op_name", "source_file")
_NUMBERS = ("source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id")
_KEPT = ("deduplicated_name", "scheduling_name", "profile_type", "metadata_payload")


class MetadataReader:
    """Reads metadata of one text, whose stack tables are ``frames``; equal texts are read once."""

    __slots__ = ("frames", "known")

    def __init__(self, frames: StackFrames | None) -> None:
        self.frames = frames
        self.known: dict[str, tuple[Metadata, str]] = {}

    def read(self, scanner: Scanner) -> tuple[Metadata, str]:
        """The metadata at the scanner's position, and the text of the items that `Metadata` has no field for."""
        scanner.skip_space()
        start = scanner.pos
        text = scanner.bracketed()
        found = self.known.get(text)
        if found is None:
            try:
                bare, extra = _read(text)
            except ParseError as e:
                e.where = scanner.location(start)
                raise
            found = self.known[text] = (_resolve(bare, self.frames), extra)
        return found


def _read(text: str) -> tuple[Metadata, str]:
    texts: dict[str, str] = {}
    numbers: dict[str, int] = {}
    kept: list[str] = []
    position = len(text) - len(text[1:].lstrip(" \t\n,"))
    end = len(text) - 1
    while position < end:
        found = _ITEM.match(text, position)
        if found is None:
            raise ParseError(f"malformed metadata near {text[position : position + 30]!r}")
        name, value = found.groups()
        if name in _TEXTS and value[0] in "\"'":
            texts[name] = unquote(value)
        elif name in _NUMBERS and value[0] not in "\"'{":
            numbers[name] = int(value)
        elif name in _KEPT:
            kept.append(f"{name}={value}")
        else:
            known = ", ".join((*_TEXTS, *_NUMBERS, *_KEPT))
            raise ParseError(f"unexpected metadata {name}={value}", fix=f"known: {known}")
        position = found.end()
    return Metadata(**texts, **numbers), " ".join(kept)  # type: ignore[arg-type]


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
