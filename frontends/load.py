"""Reading programs: what a file is shows in its content, not in its name."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError, ParseError
from shardc.hlo.files import near_files
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.types import Shape, array_shape, dtype_of
from shardc.hlo.progress import stage
from shardc.hlo.verify import verify
from shardc.launcher.driver.compiled import job_config
from shardc.partitioner.program import SourceProgram, seconds_since

__all__ = ["content_kind", "load_program", "read_file", "read_program"]

_BYTECODE, _ZIP = b"ML\xefR", b"PK\x03\x04"
_MLIR_START = re.compile(r"(module\b|\"?builtin\.module|func\.func|#\w+\s*=|!\w+\s*=|sdy\.mesh|\{-#|\"func\.func)")


_PYTHON_LINE = re.compile(r"^(?:import \w|from [\w.]+ import |def \w+\(|class \w+[:(])", re.MULTILINE)


def read_file(path: str | Path) -> bytes:
    """The bytes of a program file; raises `InputError` when there is none."""
    if "\n" in str(path) or str(path).startswith("HloModule"):
        fix = "write it to a file, such as step.hlo or step.mlir, and give that name"
        raise InputError("a program's text was given where the path of a file is needed", fix=fix)
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", fix=near_files(path)) from None
    except OSError as e:
        fix = "name a file that holds a program, and check its permissions"
        raise InputError(f"{path} cannot be read: {e.strerror}", fix=fix) from None
    if not data.strip():
        raise ParseError("the file is empty", where=str(path), fix="write the program again, or name another file")
    return data


@stage("read")
def load_program(
    data: bytes, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, start: float = 0.0
) -> SourceProgram:
    """A program from the contents of a file, which errors call ``name``; ``start`` is when reading it began."""
    start = start or time.perf_counter()
    module, jax, original = read_program(data, name, args, kwargs or {})
    verify(module)
    return SourceProgram(module, jax, original, job_config(), seconds_since("read", start))


def content_kind(data: bytes, file: str = "") -> str:
    """``hlo`` (text), ``mlir`` (text), ``bytecode``, or ``exported`` (a serialized ``jax.export.Exported``)."""
    if data.startswith(_BYTECODE):
        return "bytecode"
    if data.startswith(_ZIP):
        raise _archive(data, file)
    if b"\0" in data[:4096] or _BYTECODE in data:
        if _BYTECODE in data:
            return "exported"
        raise ParseError(
            "the file has no known binary format",
            where=file or None,
            fix="give HLO text, MLIR text, MLIR bytecode, or what jax.export.Exported.serialize() returns",
        )
    text = data[:65536].decode("utf-8", "replace")
    text = re.sub(r"\s+|//[^\n]*\n?|/\*.*?(?:\*/|\Z)", " ", text, flags=re.DOTALL).lstrip()
    return "mlir" if _MLIR_START.match(text) else "hlo"


def _archive(data: bytes, file: str) -> ParseError:
    from shardc.compiler.cache.serialize import is_executable

    if is_executable(data):
        what = "the file is an executable of shardc, as Compiled.save writes, not a program to compile"
        fix = "load it with shardc.load_executable(path); give commands the program that it was compiled from"
    else:
        what = "the file is a zip archive, as torch.save and torch.export.save write, not a program"
        fix = "load an exported program with shardc.from_torch(torch.export.load(path))"
    return ParseError(what, where=file or None, fix=fix)


def read_program(
    data: bytes, file: str = "", args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> tuple[Module, Any, bytes]:
    """The module that ``data`` holds, the JAX program (pytrees) of a serialized Exported or None, and the MLIR that
    the module was read from, empty for HLO text.

    Arguments (only shapes and types count) say what symbolic dimensions are: those of the function for an Exported,
    one per parameter for MLIR. Raises InputError for HLO text with arguments.
    """
    kind = content_kind(data, file)
    if kind == "hlo":
        if args or kwargs:
            raise InputError(
                "HLO text takes no arguments: it contains its shapes", where=file or None, fix="omit the arguments"
            )
        return _read_hlo(data, file), None, b""
    if kind == "exported":
        from shardc.frontends.jax.frontend import exported_from_bytes

        program = exported_from_bytes(data, file, args, kwargs)
        return program.module, program, program.original()
    from shardc.hlo.stablehlo.reader import read_stablehlo
    from shardc.hlo.stablehlo.refine import refine_shapes

    if kwargs:
        raise InputError(
            f"an MLIR file takes no arguments by name ({', '.join(kwargs)})", fix="give one per parameter, by position"
        )
    if args:
        data = refine_shapes(data, [_shape(a) for a in args], file)
    return read_stablehlo(data, file), None, data


def _shape(argument: Any) -> Shape:
    array = argument if hasattr(argument, "dtype") else np.asarray(argument)
    return array_shape(dtype_of(np.dtype(array.dtype)), *array.shape)


def _read_hlo(data: bytes, file: str) -> Module:
    from shardc.hlo.text.carried import restore_carried
    from shardc.hlo.text.reader import read_hlo
    from shardc.hlo.text.shardy import with_shardy

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        line = data[: e.start].count(b"\n") + 1
        raise ParseError(
            "the file is not UTF-8 text",
            where=f"{file or '<input>'}:{line}",
            fix="save it as UTF-8, or name another file",
        ) from None
    if "HloModule" not in text and (file.endswith(".py") or _PYTHON_LINE.search(text)):
        raise ParseError(
            "this file is Python, not a program in HLO or MLIR",
            where=file or None,
            fix='write the program in Python with shardc.save(f, "step.mlir", *args), then give step.mlir',
        )
    return restore_carried(with_shardy(read_hlo(text, file)))
