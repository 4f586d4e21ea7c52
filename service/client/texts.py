"""Programs of this process as bytes from which a compile service reads the same program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardc.hlo.errors import ShardcError, UnsupportedError
from shardc.hlo.ir.ir import Module

if TYPE_CHECKING:
    from shardc.partitioner.program import SourceProgram

__all__ = ["program_bytes"]


def program_bytes(program: SourceProgram) -> bytes:
    """``program`` with its annotations as HLO text, to be read without a name.

    It is read again and compared, as another program would otherwise be compiled than the one that was meant. Raises
    `UnsupportedError` where HLO text does not hold all of it.
    """
    from shardc.compiler.cache.cache import module_key
    from shardc.frontends.load import load_program
    from shardc.hlo.text.carried import print_carried

    data = print_carried(program.module).encode()
    try:
        read = load_program(data, "").module
    except ShardcError as e:
        raise UnsupportedError(f"{_FAILS}: {e.what}", where=e.where, fix=_FIX) from None
    if module_key(read, None) != module_key(program.module, None) or _sources(read) != _sources(program.module):
        raise UnsupportedError(_FAILS, where=program.module.name, fix=_FIX)
    return data


_FAILS = "the program cannot be written as HLO text without losing information"
_FIX = "save it as a file (MLIR, or a serialized jax.export.Exported), and give that file"


def _sources(module: Module) -> list[str]:
    return [i.source for i in module.instructions()]
