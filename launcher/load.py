"""Reading programs: what a file is shows in its content, not in its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shardc.hlo.errors import InputError, ParseError
from shardc.hlo.ir import Module

__all__ = ["content_kind", "read_file", "read_program"]

_BYTECODE = b"ML\xefR"
_MLIR_START = re.compile(r"(module\b|\"?builtin\.module|func\.func|#\w+\s*=|!\w+\s*=|sdy\.mesh|\{-#|\"func\.func)")


def read_file(path: str | Path) -> bytes:
    """The bytes of a program file; raises `InputError` when there is none."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror}") from None
    if not data.strip():
        raise ParseError("the file is empty", where=str(path))
    return data


def content_kind(data: bytes, file: str = "") -> str:
    """``hlo`` (text), ``mlir`` (text), ``bytecode``, or ``exported`` (a serialized ``jax.export.Exported``)."""
    if data.startswith(_BYTECODE):
        return "bytecode"
    if b"\0" in data[:4096] or _BYTECODE in data:
        if _BYTECODE in data:
            return "exported"
        raise ParseError(
            "the file is none of the known binary forms",
            where=file or None,
            fix="give HLO text, MLIR text, MLIR bytecode, or what jax.export.Exported.serialize() returns",
        )
    text = data[:65536].decode("utf-8", "replace")
    text = re.sub(r"\s+|//[^\n]*\n?|/\*.*?\*/", " ", text, flags=re.DOTALL).lstrip()
    return "mlir" if _MLIR_START.match(text) else "hlo"


def read_program(data: bytes, file: str = "") -> tuple[Module, Any]:
    """The module that ``data`` holds, and the JAX program (pytrees) of a serialized Exported or None."""
    kind = content_kind(data, file)
    if kind == "hlo":
        from shardc.hlo.text.reader import read_hlo

        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as e:
            line = data[: e.start].count(b"\n") + 1
            raise ParseError("the file is not UTF-8 text", where=f"{file or '<input>'}:{line}") from None
        return read_hlo(text, file), None
    if kind == "exported":
        from shardc.launcher.jax_frontend import exported_from_bytes

        program = exported_from_bytes(data, file)
        return program.module, program
    from shardc.hlo.stablehlo.reader import read_stablehlo

    return read_stablehlo(data, file), None
