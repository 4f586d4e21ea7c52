"""shardc as an installer leaves it: with its byte code beside the sources, as JAX has it."""

from __future__ import annotations

import compileall
from pathlib import Path

import shardc

__all__ = ["byte_compile"]


def byte_compile() -> None:
    """Write the byte code of all of shardc's sources; otherwise first compilations measure Python's compiler too."""
    for folder in sorted(Path(shardc.__file__).parent.iterdir()):
        if folder.is_dir() and folder.name != "__pycache__":
            compileall.compile_dir(folder.resolve(), quiet=1)
