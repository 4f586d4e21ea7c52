"""Writing programs to files that shardc, and the tools around JAX, read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.frontends.foreign import is_torch
from shardc.hlo.errors import InputError
from shardc.hlo.units import kind_text
from shardc.launcher.run.output_files import atomic_output, check_writable

if TYPE_CHECKING:
    from shardc.stages.stages import Program, Propagated

__all__ = ["save"]

_BYTECODE = (".mlirbc", ".bc")
_HLO = (".hlo", ".txt")


def save(program: Any, path: str | Path, *args: Any, **kwargs: Any) -> None:
    """Write a program to a file that `shardc.load` reads, with source lines and shardings.

    ``program`` is a function or jitted function of JAX with example arguments, which may be abstract. It may also be a
    ``Traced``, ``Lowered`` or ``jax.export.Exported`` of JAX, a module of PyTorch with example arguments, or a
    `Program`, `Propagated` or training step. The suffix of ``path`` chooses the format. ``.hlo`` and ``.txt`` are HLO
    text, ``.mlirbc`` and ``.bc`` MLIR bytecode. All others are MLIR text, which JAX's own tools read. HLO text keeps
    names, shardings and the mesh. An interrupted call leaves no half-written file.

    Raises `UnsupportedError` for MLIR of a program that was not read from MLIR or JAX. Raises `InputError` for
    arguments that the program does not take, or a file that cannot be written.

    >>> shardc.save(program, "step.hlo")
    >>> shardc.load("step.hlo").num_devices
    4
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"the path to write is {kind_text(path)}", fix='shardc.save(program, "step.mlir", *arguments)')
    path = Path(path)
    check_writable(path)
    data = _contents(_program_of(program, args, kwargs), path.suffix)
    with atomic_output(path) as file:
        file.write(data)


def _program_of(source: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program | Propagated:
    """The program that ``source`` is, has, or is made into with arguments."""
    from shardc.stages.programs import from_jax, from_torch
    from shardc.stages.stages import Compiled, Partitioned, Program, Propagated

    if isinstance(source, Compiled):
        raise InputError("a compiled program has no text that shardc.load reads", fix="use compiled.save(path)")
    if isinstance(source, Partitioned):
        fix = "save partitioned.program, or write partitioned.as_text(), which is the per-device program"
        raise InputError("shardc.save writes global programs, and this one is partitioned", fix=fix)
    found = source if isinstance(source, (Program, Propagated)) else getattr(source, "program", None)
    if isinstance(found, (Program, Propagated)):
        if args or kwargs:
            raise InputError(f"{kind_text(source)} takes no further arguments", fix="omit the arguments")
        return found
    return from_torch(source, args, kwargs) if is_torch(source) else from_jax(source, *args, **kwargs)


def _contents(program: Program | Propagated, suffix: str) -> bytes:
    if suffix in _HLO:
        return program.as_text().encode()
    text = program.as_stablehlo()
    if suffix not in _BYTECODE:
        return text.encode()
    from shardc.hlo.stablehlo.child import encode_bytecode

    return encode_bytecode(text.encode())
